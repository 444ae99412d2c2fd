// SPDX-License-Identifier: Apache-2.0

// Package chart renders the Helm chart of examples/charts/meshcni as Helm does, and says what the renderings may do.
//
// # Goals
//
// What a cluster gets is seen without one: every platform's manifests are checked in beside the chart, a table of rights for each
// combination of values that changes them, and what becomes of Istio's values. [Reduced] has a rendering with one permission less for each that
// there is, so that a scenario can show what each is for.
//
// # Non-goals
//
// Installing: that is Helm's.
package chart
