// SPDX-License-Identifier: Apache-2.0

// Package rulesdoc writes docs/rules.md: every rule and every other object that sidecar.Plan can
// return.
//
// The facts about a rule come from the planner's answers for everything that a redirect can be
// (sample.Space): its place, its form, its provenance, and the condition under which it exists,
// which is checked against all answers. Only the explanations are written by hand, one for each
// rule; a missing or surplus one is an error.
//
// It also writes docs/ambient-rules.md, in the same way but shorter: a table of what
// ambient.PodPlan and ambient.HostPlan return, with the reasons of the rules as explanations.
//
// The whole package is a test: go test ./internal/testing/rulesdoc compares the pages, and writes
// them with -update.
package rulesdoc
