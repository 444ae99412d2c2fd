// SPDX-License-Identifier: Apache-2.0

package iptables

import (
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
	nfTables bool // whether the kernel has them
	legacy   map[interception.Family]bool
	nft      map[interception.Family][]string // names of chains
}

// find finds out which flavours' tables a namespace has. Unreadable files matter only to Legacy.
func find(in *os.File, flavour Flavour) (findings, error) {
	f := findings{legacy: map[interception.Family]bool{}, nft: map[interception.Family][]string{}}
	listings := map[interception.Family]string{
		interception.IPv4: "/proc/thread-self/net/ip_tables_names", interception.IPv6: "/proc/thread-self/net/ip6_tables_names",
	}
	for _, family := range families() {
		err := namespace.Run(in, func() error {
			names, err := os.ReadFile(listings[family])
			f.legacy[family] = len(names) > 0
			return err
		})
		// The kernel gives the file to the root of the user namespace when the network namespace is
		// made. If that root has no number then, only the host's root can read it, and use
		// iptables-legacy.
		if errors.Is(err, fs.ErrPermission) && flavour != Legacy {
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the file is missing until the first table exists
			return findings{}, fmt.Errorf("look for tables of iptables-legacy: %w", err)
		}
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
		names, err := chainNames(socket, family)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // nfnetlink knows no subsystem nf_tables
			return f, nil
		}
		if err != nil {
			return findings{}, fmt.Errorf("look for tables of iptables-nft: %w", err)
		}
		f.nft[family] = names
	}
	f.nfTables = true
	return f, nil
}

// chainNames returns the names of nf_tables' chains of a family, those of iptables-nft among them.
func chainNames(socket *nfnetlink.Socket, family interception.Family) ([]string, error) {
	protocol := uint8(unix.NFPROTO_IPV4)
	if family == interception.IPv6 {
		protocol = unix.NFPROTO_IPV6
	}
	messages, err := socket.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, protocol, func(*nfnetlink.Attributes) {})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range messages {
		err := nfnetlink.Decode(m, func(d *netlink.AttributeDecoder) {
			if d.Type() == unix.NFTA_CHAIN_NAME {
				names = append(names, d.String())
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// mayOwn reports whether the owner may have a chain. For Legacy only a program can find out.
func (f findings) mayOwn(t tool, prefix string) bool {
	if t.flavour == Legacy {
		return f.legacy[t.family]
	}
	return slices.ContainsFunc(f.nft[t.family], func(name string) bool { return strings.HasPrefix(name, prefix) })
}

func (f findings) has(flavour Flavour) bool {
	return slices.ContainsFunc(families(), func(family interception.Family) bool {
		return flavour == Legacy && f.legacy[family] || flavour == NFT && len(f.nft[family]) > 0
	})
}
