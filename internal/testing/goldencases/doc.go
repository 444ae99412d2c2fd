// SPDX-License-Identifier: Apache-2.0

// Package goldencases turns the golden cases into cases of dataplanetest.Conformance: every
// dataplane is tested with the same plans and real packets for each. [Refute] changes their plans,
// and makes the kernel confirm what package proof reports about the change.
//
// It is for meshcni's own tests only.
package goldencases
