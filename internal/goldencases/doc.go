// SPDX-License-Identifier: Apache-2.0

// Package goldencases makes the golden cases into cases of dataplanetest.Conformance: every
// dataplane is held to the same plans, and the packets of each are sent for real. [Refute] changes
// their plans, and has the kernel confirm what package proof says of the change.
//
// It is for meshcni's own tests, and has no other use.
package goldencases
