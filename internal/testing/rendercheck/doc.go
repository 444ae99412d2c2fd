// SPDX-License-Identifier: Apache-2.0

// Package rendercheck loads the output of package interception/render with the real tools, nft and
// both flavours of iptables: that of the goldens, of random plans, and of plans from fuzzing. It
// has only tests. They are not beside render's own, which run anywhere, because they need
// namespaces.
package rendercheck
