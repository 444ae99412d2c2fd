// SPDX-License-Identifier: Apache-2.0

// Package settings is the schema of what install-cni can be told: one table of settings, with name, type, default, bounds, help, and
// whether each may change while the daemon runs. The flags, the names of environment variables and of files in the settings directory, the
// checks, docs/settings.md and the JSON schema for the values of a chart all come from it.
//
// The names, defaults and meanings are those of Istio's install-cni, of today and of 1.18, so that its DaemonSets work unchanged. A flag
// wins over the settings directory, that over the environment, and that over the default. A variable that is set to nothing counts as
// set. Bad values are errors that name where the value came from; all of them are reported together. So are names that look like
// a setting and are none. Settings of Istio's without effect here are accepted, and those that were changed are listed.
//
// Non-goals: watching the directory, and what a setting does. Files of the node are the installer's business.
package settings
