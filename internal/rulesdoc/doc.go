// SPDX-License-Identifier: Apache-2.0

// Package rulesdoc writes docs/rules.md: every rule and every other object that sidecar.Plan can
// make.
//
// What the document says of a rule comes from the planner itself, which is asked about everything
// that a redirect can be (sample.Space): where the rule stands, what it looks like, what it is made
// from, and under which condition it exists, which is checked against all that was asked. Only the
// explanations are written by hand, one for each rule; one too many or too few is an error.
//
// All of it is a test: go test ./internal/rulesdoc compares the page, and writes it with -update.
package rulesdoc
