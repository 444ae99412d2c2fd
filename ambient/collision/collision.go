// SPDX-License-Identifier: Apache-2.0

package collision

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Standing is what a network namespace holds besides a plan's own objects, as far as the numbers of
// a plan can be in use there. The zero value is an empty namespace.
type Standing struct {
	// Chains are the chains of other programs, as [interception.State] has them.
	Chains []interception.ForeignChain
	// PolicyRules and Routes are complete: they are of all tables.
	PolicyRules []interception.PolicyRule
	Routes      []interception.Route
	// Links are the names of the interfaces, and Addresses their addresses with their subnets.
	Links     []interception.Interface
	Addresses []netip.Prefix
	// UDPPorts are those that a socket or a tunnel has.
	UDPPorts []interception.Port
}

// Collision is a number, name or address of a plan that something else uses as well.
type Collision struct {
	// Use is what the plan has, such as "packet mark 0x100/0x100" or "UDP port 6081".
	Use string
	// By is what uses it already.
	By string
}

// String returns both, such as "table 101 is used by route unicast 10.0.0.0/8".
func (c Collision) String() string { return c.Use + " is used by " + c.By }

// Find returns what a plan would share with what stands in its namespace, for a caller that refuses
// to apply such a plan. It returns nil if there is nothing.
//
// A policy rule or a route that is the same as one of the plan collides with nothing: the plan
// takes it over.
func Find(p *interception.Plan, s Standing) []Collision {
	var all []Collision
	for _, o := range p.Objects {
		switch o := o.(type) {
		case interception.PolicyRule:
			all = append(all, s.policyRules(p, o)...)
		case interception.Route:
			all = append(all, s.routes(p, o)...)
		case interception.Link:
			all = append(all, s.links(o)...)
		case interception.Address:
			for _, address := range s.Addresses {
				if address.Overlaps(o.Prefix) {
					all = append(all, Collision{fmt.Sprintf("subnet %s", o.Prefix.Masked()), fmt.Sprintf("address %s", address)})
				}
			}
		}
	}
	all = append(append(all, s.patterns(p)...), s.marks(p)...)
	seen := map[Collision]bool{}
	return slices.DeleteFunc(all, func(c Collision) bool {
		again := seen[c]
		seen[c] = true
		return again
	})
}

// policyRules returns the rules that one of the plan would share its priority, table or mark with.
func (s Standing) policyRules(p *interception.Plan, own interception.PolicyRule) (all []Collision) {
	for _, r := range s.PolicyRules {
		if r.Family != own.Family || planHas(p, r, samePolicyRule) {
			continue
		}
		by := fmt.Sprintf("policy rule %s priority %d mark %s table %d", r.Family, r.Priority, r.Mark, cmp.Or(r.Table, mainTable))
		switch {
		case r.Priority == own.Priority:
			all = append(all, Collision{fmt.Sprintf("priority %d", own.Priority), by})
		case r.Table == own.Table && !kernelTable(own.Table):
			all = append(all, Collision{fmt.Sprintf("table %d", own.Table), by})
		case r.Mark.Mask&own.Mark.Mask != 0:
			all = append(all, Collision{"packet mark " + own.Mark.String(), by})
		}
	}
	return all
}

// routes returns the other routes of the table of a route of the plan.
func (s Standing) routes(p *interception.Plan, own interception.Route) (all []Collision) {
	if kernelTable(own.Table) {
		return nil
	}
	for _, r := range s.Routes {
		if r.Table == own.Table && !planHas(p, r, sameRoute) {
			by := fmt.Sprintf("route %s %s dev %s", r.Type, r.Destination, r.Device)
			all = append(all, Collision{fmt.Sprintf("table %d", own.Table), by})
		}
	}
	return all
}

// links returns what has the name or the port of a link of the plan.
func (s Standing) links(own interception.Link) (all []Collision) {
	if slices.Contains(s.Links, own.Name) {
		all = append(all, Collision{"link " + string(own.Name), "an interface of that name"})
	}
	var port interception.Port
	switch {
	case own.VXLAN != nil:
		port = own.VXLAN.Port
	case own.Geneve != nil:
		port = own.Geneve.Port
	}
	if slices.Contains(s.UDPPorts, port) {
		all = append(all, Collision{fmt.Sprintf("UDP port %d", port), "a socket or a tunnel"})
	}
	return all
}

// patterns returns the interfaces whose names match a pattern of the plan's rules, which is for the
// plan's own interfaces.
func (s Standing) patterns(p *interception.Plan) (all []Collision) {
	for m := range matches(p) {
		for _, names := range []interception.InterfaceSet{m.In.Set(), m.Out.Set()} {
			for _, pattern := range names.Names() {
				if stem, is := strings.CutSuffix(string(pattern), "*"); is {
					all = append(all, s.named(p, pattern, stem)...)
				}
			}
		}
	}
	return all
}

// named returns the interfaces whose names begin with a stem. One with the name of a link of the
// plan is reported with that link.
func (s Standing) named(p *interception.Plan, pattern interception.Interface, stem string) (all []Collision) {
	for _, name := range s.Links {
		isLink := planHas(p, interception.Link{Name: name}, func(a, b interception.Link) bool { return a.Name == b.Name })
		if strings.HasPrefix(string(name), stem) && !isLink {
			all = append(all, Collision{"the pattern " + string(pattern), "interface " + string(name)})
		}
	}
	return all
}

// matches are those of the plan's jumps and rules.
func matches(p *interception.Plan) iter.Seq[interception.Match] {
	return func(yield func(interception.Match) bool) {
		for table := range p.Tables() {
			for _, e := range table.Entries {
				if !yield(e.Match) {
					return
				}
			}
		}
		for _, r := range p.Rules() {
			if !yield(r.Match) {
				return
			}
		}
	}
}

// The routing tables that the kernel has by itself (ip-route(8)).
const (
	defaultTable interception.RoutingTable = 253
	mainTable    interception.RoutingTable = 254
	localTable   interception.RoutingTable = 255
)

func kernelTable(t interception.RoutingTable) bool {
	return t == 0 || t >= defaultTable && t <= localTable
}

// planHas reports whether the plan has an object that is the same.
func planHas[O interception.Object](p *interception.Plan, o O, same func(a, b O) bool) bool {
	for own := range interception.ObjectsOf[O](p) {
		if same(own, o) {
			return true
		}
	}
	return false
}

func samePolicyRule(a, b interception.PolicyRule) bool {
	return a.Family == b.Family && a.Priority == b.Priority && a.Mark == b.Mark && a.In == b.In && a.Source == b.Source &&
		a.Destination == b.Destination && cmp.Or(a.Table, mainTable) == cmp.Or(b.Table, mainTable)
}

func sameRoute(a, b interception.Route) bool {
	return a.Type == b.Type && a.Destination == b.Destination && a.Device == b.Device && a.Gateway == b.Gateway && a.Table == b.Table
}
