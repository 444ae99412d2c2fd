// SPDX-License-Identifier: Apache-2.0

// Package settings holds what install-cni can be told: one table of settings, from which the flags, the environment's names, the checks
// and the documentation come.
//
// The names, defaults and precedence (flag, then environment, then default; an empty variable counts as set) are those of Istio's
// install-cni, so that its DaemonSet works unchanged. Bad values are errors that name where the value came from; all of them are
// reported together. Settings of Istio's that have no effect here are accepted, and those that were changed are listed.
//
// Non-goals: reading configuration files, and reading anything but flags and environment: what stands in a directory is the
// installer's business.
package settings
