// SPDX-License-Identifier: Apache-2.0

// Package sample makes random redirects, and random packets that meet their edges: addresses at both ends of a prefix and just beyond,
// ports likewise, ids that are the proxy's and ids that are nobody's. What it makes is valid, and the same for the same [Choices].
//
// It is for meshcni's own tests, and has no other use.
package sample
