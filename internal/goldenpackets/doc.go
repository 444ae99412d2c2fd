// SPDX-License-Identifier: Apache-2.0

// Package goldenpackets sends the packets of the golden cases for real, through a dataplane's rules, and compares what the kernel
// does with what package trace says: every dataplane is held to the same ([Compare]).
//
// It is for meshcni's own tests, which send packets on Linux only.
package goldenpackets
