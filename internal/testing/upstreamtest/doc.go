// SPDX-License-Identifier: Apache-2.0

// Package upstreamtest writes the rules of Istio's own node agent into network namespaces, as texts
// for the programs that the agent starts: for tests of what recognises these rules and takes pods
// over. The texts are made from the facts in Istio's golden files (cni/pkg/iptables/testdata and
// cni/pkg/nftables/testdata), and not from the plans that they are compared with.
package upstreamtest
