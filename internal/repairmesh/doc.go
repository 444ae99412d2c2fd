// SPDX-License-Identifier: Apache-2.0

// Package repairmesh lets a mesh of package sidecar judge pods and plan for them where package repair and those below it ask for a mesh. They
// know no planner themselves, so that they can serve a mesh without sidecars, too. It has no settings and no effects.
package repairmesh
