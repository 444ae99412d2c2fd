// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// foreign is what another program has in a namespace: a table, policy rules and routes.
type foreign struct {
	node      *node
	namespace *sandbox.Namespace
	ruleset   string // for nft
	there     string // all that was there at first, as the kernel lists it
}

const (
	foreignTable  = "foreign"
	foreignRoutes = 200 // number of the table of its routes
)

// hostRules are those of a program that filters what the node forwards.
const hostRules = `table inet foreign {
	chain forward {
		type filter hook forward priority 10; policy accept;
		tcp dport 9 drop
	}
}
`

// newForeign begins to have something in a namespace.
func (n *node) newForeign(in *sandbox.Namespace, ruleset string) *foreign {
	n.t.Helper()
	f := &foreign{node: n, namespace: in, ruleset: ruleset}
	for family, destination := range map[int]string{netlink.FAMILY_V4: "203.0.113.0/24", netlink.FAMILY_V6: "2001:db8:113::/48"} {
		rule := netlink.NewRule()
		rule.Family, rule.Priority, rule.Mark, rule.Table = family, 1000, 0x8000, foreignRoutes
		n.must(in.Netlink().RuleAdd(rule))
		_, to, err := net.ParseCIDR(destination)
		n.must(err)
		n.must(in.Netlink().RouteAdd(&netlink.Route{Table: foreignRoutes, Dst: to, Type: unix.RTN_BLACKHOLE}))
	}
	f.load()
	return f
}

// load loads the table.
func (f *foreign) load() {
	f.node.t.Helper()
	sandboxtest.Run(f.node.t, f.namespace.File(), f.ruleset, "nft", "-f", "-")
	var err error
	f.there, err = f.list()
	f.node.must(err)
}

// right returns an error if anything differs from what was there at first.
func (f *foreign) right() error {
	now, err := f.list()
	if err == nil && now != f.there {
		err = fmt.Errorf("another program had\n%s\nand now has\n%s", f.there, now)
	}
	return err
}

// list returns all of it without what the counters have counted. The kernel gives a rule that
// replaces another one its own handle.
func (f *foreign) list() (string, error) {
	kernel, err := f.kernel()
	if err != nil {
		return "", err
	}
	chains, err := kernel.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return "", err
	}
	var all []any
	for _, chain := range chains {
		if chain.Table.Name != foreignTable {
			continue
		}
		rules, err := kernel.GetRules(chain.Table, chain)
		if err != nil {
			return "", err
		}
		all = append(all, chain, rules)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := f.namespace.Netlink().RuleListFiltered(family, &netlink.Rule{Table: foreignRoutes}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return "", err
		}
		routes, err := f.namespace.Netlink().RouteListFiltered(family, &netlink.Route{Table: foreignRoutes}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return "", err
		}
		all = append(all, rules, routes)
	}
	text, err := json.Marshal(all)
	return string(text), err
}

func (f *foreign) kernel() (*nftables.Conn, error) {
	return nftables.New(nftables.WithNetNSFd(int(f.namespace.File().Fd()))) //nolint:gosec // a descriptor is a small number
}

// counted returns what the counters of the table have counted.
func (f *foreign) counted() string {
	f.node.t.Helper()
	kernel, err := f.kernel()
	f.node.must(err)
	table := &nftables.Table{Name: foreignTable, Family: nftables.TableFamilyINet}
	objects, err := kernel.GetObj(&nftables.CounterObj{Table: table})
	f.node.must(err)
	var counts []string
	for _, o := range objects {
		if counter, is := o.(*nftables.CounterObj); is {
			counts = append(counts, fmt.Sprintf("%d %s", counter.Packets, counter.Name))
		}
	}
	if len(counts) == 0 {
		f.node.t.Fatalf("%s has no counters", f.namespace.Path())
	}
	return strings.Join(counts, ", ")
}
