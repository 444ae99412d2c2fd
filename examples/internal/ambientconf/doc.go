// SPDX-License-Identifier: Apache-2.0

// Package ambientconf has the settings of ambient mode, as the daemon passes them to the processes
// of that mode: JSON in a flag. The settings are Istio's, and so are the defaults.
package ambientconf
