// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// The layout of a table of iptables-legacy (linux/netfilter/x_tables.h,
// linux/netfilter_ipv4/ip_tables.h, linux/netfilter_ipv6/ip6_tables.h). A rule is an entry, which
// ends with its target. A chain of users begins with an entry whose target is named ERROR and has
// the chain's name; such an entry also ends the table. The last entry of a chain is its policy, or
// the return from it.
const (
	targetSize      = 32 // of what precedes a target's own data
	offsetInEntry4  = 88 // of the offset of the target, after which comes that of the next entry
	offsetInEntry6  = 140
	errorTarget     = "ERROR"
	netfilterHooks  = 5
	standardVerdict = 4
)

var errLayout = errors.New("a table has not the form that ip_tables.h describes")

// legacyTable is a table as the kernel returns it.
type legacyTable struct {
	name    string
	hooks   map[uint32]string // the kernel's own chains, by the offset of their first entry
	entries []byte
}

// legacyHooks are the names of the kernel's own chains, in the order of NF_INET_PRE_ROUTING and
// those that follow.
func legacyHooks() [netfilterHooks]string {
	return [netfilterHooks]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
}

// chains returns the chains of a table. It does not decode rules: only where they lead.
func (t legacyTable) chains(family interception.Family) ([]kernelChain, error) {
	var chains []kernelChain
	heads, jumps := map[uint32]int{}, map[uint32]int{}
	for at := uint32(0); int(at) < len(t.entries); {
		target, next, err := t.entry(at, family)
		if err != nil {
			return nil, err
		}
		name := text(target[2:targetSize])
		hook, isHook := t.hooks[at]
		switch {
		case name == errorTarget:
			chains = append(chains, kernelChain{table: t.name, name: text(target[targetSize:]), uses: -1}) // its return is no rule
			heads[next] = len(chains) - 1
		case isHook:
			chains = append(chains, kernelChain{table: t.name, name: hook, base: true, uses: -1}) // its policy is no rule
		case len(chains) == 0:
			return nil, errLayout
		}
		if name != errorTarget {
			chains[len(chains)-1].uses++
		}
		// A rule without a target leads to the next one.
		if to, is := verdict(name, target); is && to != next {
			jumps[to]++
		}
		at = next
	}
	last := len(chains) - 1 // the end of the table
	if end, is := heads[uint32(len(t.entries))]; !is || end != last {
		return nil, errLayout
	}
	chains = chains[:last]
	if err := led(chains, heads, jumps); err != nil {
		return nil, err
	}
	return chains, nil
}

// led adds the jumps to the uses of the chains to whose first entries they lead.
func led(chains []kernelChain, heads, jumps map[uint32]int) error {
	for to, count := range jumps {
		i, is := heads[to]
		if !is || i >= len(chains) {
			return errLayout
		}
		chains[i].uses += count
	}
	if slices.ContainsFunc(chains, func(c kernelChain) bool { return c.uses < 0 }) {
		return errLayout
	}
	return nil
}

// entry returns the target of an entry, and where the next one begins.
func (t legacyTable) entry(at uint32, family interception.Family) (target []byte, next uint32, err error) {
	offset := uint32(offsetInEntry4)
	if family == interception.IPv6 {
		offset = offsetInEntry6
	}
	entry := t.entries[at:]
	if len(entry) < int(offset)+4 {
		return nil, 0, errLayout
	}
	begin := uint32(binary.NativeEndian.Uint16(entry[offset:]))
	size := uint32(binary.NativeEndian.Uint16(entry[offset+2:]))
	if begin < offset || begin+targetSize+standardVerdict > size || int(size) > len(entry) {
		return nil, 0, errLayout
	}
	return entry[begin:size], at + size, nil
}

// verdict returns where a target leads, false for those that lead to no entry of the table.
func verdict(name string, target []byte) (uint32, bool) {
	if name != "" {
		return 0, false
	}
	to := binary.NativeEndian.Uint32(target[targetSize:])
	return to, to < 1<<31 // the others are negative: ACCEPT, DROP, RETURN
}

// text returns a text that ends with the first NUL.
func text(of []byte) string {
	before, _, _ := bytes.Cut(of, []byte{0})
	return string(before)
}
