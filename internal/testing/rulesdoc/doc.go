// SPDX-License-Identifier: Apache-2.0

// Package rulesdoc writes docs/rules.md: every rule and every other object that sidecar.Plan can
// return.
//
// The facts about a rule come from the planner's answers for everything that a redirect can be
// (sample.Space): its place, its form, its provenance, and the condition under which it exists,
// which is checked against all answers. Only the explanations are written by hand, one for each
// rule; a missing or surplus one is an error.
//
// The whole package is a test: go test ./internal/testing/rulesdoc compares the page, and writes it
// with -update.
package rulesdoc
