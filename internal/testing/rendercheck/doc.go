// SPDX-License-Identifier: Apache-2.0

// Package rendercheck loads the output of package interception/render with the real tools, nft and
// both flavours of iptables: that of the goldens, of random plans, and of plans from fuzzing. It is
// all tests, apart from render's own because they need namespaces: those of render run anywhere.
package rendercheck
