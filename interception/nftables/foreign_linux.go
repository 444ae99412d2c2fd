// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// foreignFamilies are those whose chains IP packets meet, with nft's words for them.
func foreignFamilies() map[uint8]string {
	return map[uint8]string{
		unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_NETDEV: "netdev",
	}
}

// readForeign reads the chains of all tables but the owner's.
func readForeign(socket *nfnetlink.Socket, owner interception.Owner) ([]interception.ForeignChain, error) {
	var chains []interception.ForeignChain
	for _, family := range []uint8{unix.NFPROTO_NETDEV, unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		messages, err := query(socket, unix.NFT_MSG_GETTABLE, family, func(*nfnetlink.Attributes) {})
		if err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		for _, m := range messages {
			a := parseAttributes(m)
			table := &kernelTable{family: family, name: a.text(unix.NFTA_TABLE_NAME), flags: a.number(unix.NFTA_TABLE_FLAGS)}
			if family == unix.NFPROTO_INET && table.name == string(owner) || table.flags&dormant != 0 {
				continue
			}
			if err := table.read(socket); err != nil {
				return nil, err
			}
			constant := func(s kernelSet) bool { return s.flags&unix.NFT_SET_CONSTANT != 0 && s.strange == "" }
			if err := table.readElements(socket, constant); err != nil {
				return nil, err
			}
			chains = append(chains, table.foreign()...)
		}
	}
	return chains, nil
}

// foreign are the table's chains as those of somebody else.
func (t *kernelTable) foreign() []interception.ForeignChain {
	nobody := func(*kernelSet) (planSet, bool) { return planSet{}, false }
	var chains []interception.ForeignChain
	for _, c := range t.chains {
		f := interception.ForeignChain{Table: foreignFamilies()[t.family] + " " + printable(t.name), Name: printable(c.name)}
		if c.base {
			f.Hook, f.Type, f.Priority = hookName(t.family, c.hook), c.kind, c.priority
			f.Policy = interception.Drop{}
			if c.policy == policyAccept {
				f.Policy = interception.Accept{}
			}
		}
		for _, k := range c.rules {
			r := t.rule(k, nobody)
			if r.Action == (interception.Opaque{Text: describe(nil)}) {
				continue
			}
			if jump, ok := r.Action.(interception.Jump); ok {
				r.Action = interception.Jump{Chain: interception.ChainName(printable(string(jump.Chain)))}
			}
			f.Rules = append(f.Rules, r)
		}
		chains = append(chains, f)
	}
	return chains
}
