// SPDX-License-Identifier: Apache-2.0

// Package look gathers what package preflight concludes from: the files, links and policy rules of
// a node, and whether its kernel can have the rules of ambient mode.
//
// It changes nothing. The kernel is tried in a network namespace that is thrown away. What cannot
// be looked at is in the view, with the reason.
package look
