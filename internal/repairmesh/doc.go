// SPDX-License-Identifier: Apache-2.0

// Package repairmesh lets a [sidecar.Mesh] judge pods and plan for them where package repair and those below it ask for a mesh. They know no
// planner themselves, so that a mesh without sidecars can be repaired by them, too.
package repairmesh
