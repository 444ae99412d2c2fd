// SPDX-License-Identifier: Apache-2.0

// Package chart renders the Helm chart of examples/charts/meshcni as Helm does, and lists what the
// rendered objects may do.
//
// # Goals
//
// Reviewers see what a cluster gets without a cluster: every platform's manifests are checked in
// beside the chart, with a table of rights for each combination of values that changes them, and
// the effect of each of Istio's values. [Reduced] returns, for each permission, a rendering without
// it, so that a scenario can show what the permission is for.
//
// # Non-goals
//
// Installing, which Helm does.
package chart
