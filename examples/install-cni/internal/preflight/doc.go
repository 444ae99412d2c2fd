// SPDX-License-Identifier: Apache-2.0

// Package preflight says before any pod is captured what on a node will keep ambient mode from
// working, and what to do about it:
//
//	files, links, policy rules, kernel --look.Node--> View --Findings--> []Finding
//	kubectl get networkpolicies -o json --ParsePolicies--^
//
// A finding is a pure conclusion from a [View]; package look makes that, and changes nothing.
//
// # Non-goals
//
// What only the API server, or another program's own configuration there, can tell: a finding then
// names the setting to look at.
package preflight
