// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// findings are what a namespace shows without a program being started.
type findings struct {
	nfTables bool                             // whether the kernel has them
	legacy   map[interception.Family][]string // the names of tables
	nft      map[interception.Family][]kernelChain
	entries  map[interception.Family][]kernelChain // those of legacy tables, as far as they are known
}

// find finds out which flavours' tables a namespace has. Unreadable files matter only to Legacy.
func find(in *os.File, flavour Flavour) (findings, error) {
	f := findings{nft: map[interception.Family][]kernelChain{}}
	if err := namespace.Run(in, func() (err error) {
		f.legacy, err = listLegacy(flavour)
		return err
	}); err != nil {
		return findings{}, fmt.Errorf("look for tables of iptables-legacy: %w", err)
	}
	socket, err := nfnetlink.Open(in)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return f, nil
	}
	if err != nil {
		return findings{}, err
	}
	defer func() { _ = socket.Close() }()
	for _, family := range families() {
		chains, err := nftChains(socket, family)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // nfnetlink knows no subsystem nf_tables
			return f, nil
		}
		if err != nil {
			return findings{}, fmt.Errorf("look for tables of iptables-nft: %w", err)
		}
		f.nft[family] = chains
	}
	f.nfTables = true
	return f, nil
}

// listLegacy returns the names of the tables of iptables-legacy in the thread's namespace.
func listLegacy(flavour Flavour) (map[interception.Family][]string, error) {
	tables := map[interception.Family][]string{}
	for _, family := range families() {
		listing := "/proc/thread-self/net/ip_tables_names"
		if family == interception.IPv6 {
			listing = "/proc/thread-self/net/ip6_tables_names"
		}
		names, err := os.ReadFile(listing)
		// The kernel gives the file to the root of the user namespace when the network namespace is
		// made. If that root has no number then, only the host's root can read it, and use
		// iptables-legacy.
		if errors.Is(err, fs.ErrPermission) && flavour != Legacy {
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the file is missing until the first table exists
			return nil, err
		}
		tables[family] = legacyTables(names)
	}
	return tables, nil
}

// nftChains returns nf_tables' chains of a family, those of iptables-nft among them.
func nftChains(socket *nfnetlink.Socket, family interception.Family) ([]kernelChain, error) {
	protocol := uint8(unix.NFPROTO_IPV4)
	if family == interception.IPv6 {
		protocol = unix.NFPROTO_IPV6
	}
	messages, err := socket.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, protocol, func(*nfnetlink.Attributes) {})
	if err != nil {
		return nil, err
	}
	chains := make([]kernelChain, len(messages))
	for i, m := range messages {
		c := &chains[i]
		err := nfnetlink.Decode(m, func(d *netlink.AttributeDecoder) {
			switch d.Type() {
			case unix.NFTA_CHAIN_TABLE:
				c.table = d.String()
			case unix.NFTA_CHAIN_NAME:
				c.name = d.String()
			case unix.NFTA_CHAIN_HOOK:
				c.base = true
			case unix.NFTA_CHAIN_USE:
				if uses := d.Bytes(); len(uses) == 4 {
					c.uses = int(binary.BigEndian.Uint32(uses))
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return chains, nil
}

// lookIntoLegacy reads the chains of legacy tables where this process can. The others are for the
// programs.
func (f *findings) lookIntoLegacy(in *os.File) {
	f.entries = map[interception.Family][]kernelChain{}
	for family, tables := range f.legacy {
		if chains, err := legacyChains(in, family, tables); err == nil {
			f.entries[family] = chains
		}
	}
}

// chains returns the chains of a tool, false if only a program can find them out.
func (f findings) chains(t tool) (chains []kernelChain, known bool) {
	if t.flavour == Legacy {
		chains, known = f.entries[t.family]
		return chains, known
	}
	return f.nft[t.family], true
}

// mayOwn reports whether the owner may have a chain.
func (f findings) mayOwn(t tool, prefix string) bool {
	chains, known := f.chains(t)
	if !known {
		return len(f.legacy[t.family]) > 0
	}
	return slices.ContainsFunc(chains, func(c kernelChain) bool { return strings.HasPrefix(c.name, prefix) })
}

func (f findings) has(flavour Flavour) bool {
	return slices.ContainsFunc(families(), func(family interception.Family) bool {
		return flavour == Legacy && len(f.legacy[family]) > 0 || flavour == NFT && len(f.nft[family]) > 0
	})
}
