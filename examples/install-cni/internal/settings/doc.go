// SPDX-License-Identifier: Apache-2.0

// Package settings is the schema of install-cni's settings: one table, with name, type, default,
// bounds, help, and whether each may change while the daemon runs. The flags, the names of
// environment variables and of files in the settings directory, the checks, docs/settings.md and
// the JSON schema for the values of a chart all come from it.
//
// The names, defaults and meanings are those of Istio's install-cni, of today and of 1.18, so that
// its DaemonSets work unchanged. A flag takes precedence over the settings directory, the directory
// over the environment, and the environment over the default. A variable with an empty value counts
// as set. Bad values are errors that name where the value came from; all of them are reported
// together, as are names that look like a setting but are not. Settings of Istio's without effect
// here are accepted, and listed if they were changed.
//
// [Load] reads the settings once; [Live] follows their directory, and the file of a template for
// the plugin's entry, while a daemon runs. Non-goals: what a setting does, and files of the node,
// which belong to the installer.
package settings
