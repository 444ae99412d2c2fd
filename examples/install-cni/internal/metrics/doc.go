// SPDX-License-Identifier: Apache-2.0

// Package metrics counts what the daemon does and what plugins tell it, for Prometheus.
//
// # Goals
//
// The names of Istio's install-cni are kept, with their meaning: istio_cni_installs_total and istio_cni_install_ready. All others begin with
// meshcni_. Every label has one of a few values: what a plugin says that isn't known counts as "other". Names and labels are part of what
// users rely on, as the dashboard and the alerts in examples/install-cni/monitoring are; tests hold them together.
//
// # Non-goals
//
// Pods' names, which have no bounds: they are in the log. Metrics of the Go runtime.
package metrics
