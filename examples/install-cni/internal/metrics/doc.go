// SPDX-License-Identifier: Apache-2.0

// Package metrics counts what the daemon does and what plugins report to it, for Prometheus.
//
// # Goals
//
// The names of Istio's install-cni keep their meaning: istio_cni_installs_total and
// istio_cni_install_ready. All others begin with meshcni_. Every label has one of a few values: an
// unknown value from a plugin counts as "other". Users rely on names and labels, as do the
// dashboard and the alerts in examples/charts/meshcni/monitoring; tests keep them consistent.
//
// # Non-goals
//
// Names of pods, whose number has no bound: the log has them. Metrics of the Go runtime.
package metrics
