// SPDX-License-Identifier: Apache-2.0

// Package goldencases makes the golden cases into cases of dataplanetest.Conformance: every dataplane is held to the same plans, and the
// packets of each are sent for real.
//
// It is for meshcni's own tests, and has no other use.
package goldencases
