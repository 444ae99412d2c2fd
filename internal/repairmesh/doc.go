// SPDX-License-Identifier: Apache-2.0

// Package repairmesh adapts a mesh of package sidecar to package repair and the packages below it.
// Those know no planner themselves, so that they can serve a mesh without sidecars, too. It has no
// settings and no effects.
package repairmesh
