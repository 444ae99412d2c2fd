// SPDX-License-Identifier: Apache-2.0

package ambientconf

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// WholePlan returns a plan with all that the plans of pods and of the host need, or with Mode node
// those of the host and of the proxy, for a trial on a machine. The chains of both have different
// names.
func (c Config) WholePlan() (*interception.Plan, error) {
	facts := interception.Facts{IPv6: true, LoopbackIPv6: true}
	if c.OnNode() {
		return c.wholeNodePlan(facts)
	}
	pod, err := ambient.PodPlan(ambient.DefaultOverrides(c.DNS), ambient.IstioNumbers(), facts, Owner)
	if err != nil || c.NoHost {
		return pod, err
	}
	host, err := ambient.HostPlan(ambient.IstioNumbers(), facts, Owner)
	if err != nil {
		return nil, err
	}
	return join(pod, host), nil
}

// NodeNumbers returns the numbers of Mode node: they leave Istio's own to an agent of Istio 1.18 to
// 1.20, which is taken over while its connections go on.
func NodeNumbers() ambient.NodeNumbers { return ambient.BesideIstioNodeNumbers() }

// wholeNodePlan is WholePlan for Mode node. The addresses are those of no proxy.
func (c Config) wholeNodePlan(facts interception.Facts) (*interception.Plan, error) {
	proxy := ambient.NodeProxy{
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")}, Way: c.ProxyWay(), DNS: c.DNS,
	}
	if proxy.Way == ambient.WayVeth {
		proxy.Namespace = "proxy"
	} else {
		proxy.Node = netip.MustParseAddr("192.0.2.1")
	}
	host, err := ambient.NodePlan(proxy, NodeNumbers(), facts, NodeOwner)
	if err != nil {
		return nil, err
	}
	inProxy, err := ambient.ProxyPlan(proxy, NodeNumbers(), facts, NodeOwner)
	if err != nil {
		return nil, err
	}
	return join(filtering(host), filtering(inProxy)), nil
}

// filtering returns a plan's tables and sets alone: links, addresses, routes and settings are the
// same in each dataplane, and those of both ends of a wire have the same ids.
func filtering(plan *interception.Plan) *interception.Plan {
	isOther := func(object interception.Object) bool {
		switch object.(type) {
		case interception.Link, interception.Address, interception.Route, interception.PolicyRule, interception.Sysctl:
			return true
		}
		return false
	}
	return &interception.Plan{Owner: plan.Owner, Objects: slices.DeleteFunc(slices.Clone(plan.Objects), isOther)}
}

// join returns a plan with the objects of both. A plan has one table of a kind at most, so that the
// tables are joined; they come last, as they refer to sets.
func join(a, b *interception.Plan) *interception.Plan {
	joined := &interception.Plan{Owner: a.Owner}
	var tables []interception.Table
	for _, object := range slices.Concat(a.Objects, b.Objects) {
		table, is := object.(interception.Table)
		if !is {
			joined.Objects = append(joined.Objects, object)
			continue
		}
		i := slices.IndexFunc(tables, func(t interception.Table) bool { return t.Kind == table.Kind })
		if i < 0 {
			tables = append(tables, table)
			continue
		}
		tables[i].Entries, tables[i].Chains = slices.Concat(tables[i].Entries, table.Entries), slices.Concat(tables[i].Chains, table.Chains)
	}
	for _, table := range tables {
		joined.Objects = append(joined.Objects, table)
	}
	return joined
}
