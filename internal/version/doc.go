// SPDX-License-Identifier: Apache-2.0

// Package version knows the version that a program of this module was built from.
package version
