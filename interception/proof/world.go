// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// World is a pod in which every rule of the plans can have something to do: that of [trace.Sidecar], with an application that listens on
// port 8080, with the proxy's listeners of all plans, with a link for every other interface that a rule names and, where there are such,
// with one that none names. The plans are not in it.
func World(plans ...*interception.Plan) trace.World { return worldFor(plans, nil) }

// worldFor is [World] with addresses of eth0, or with those of [trace.Sidecar] for nil.
func worldFor(plans []*interception.Plan, addresses []netip.Prefix) trace.World {
	together := &interception.Plan{} // of which only the rules are looked at
	for _, plan := range plans {
		together.Objects = append(together.Objects, plan.Objects...)
	}
	world := trace.Sidecar(together, trace.SidecarOptions{Addresses: addresses, Listeners: []trace.Listener{
		{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080},
		{Name: "application", Protocol: interception.ProtocolUDP, Port: 8080},
	}})
	pod := &world.Namespaces[0]
	pod.Plans = nil
	for i, name := range linksOf(together) {
		known := slices.ContainsFunc(pod.Links, func(l trace.Link) bool { return l.Name == name })
		planned := slices.ContainsFunc(together.Objects, func(o interception.Object) bool {
			l, ok := o.(interception.Link)
			return ok && l.Name == name
		})
		if known || planned || i >= maxLinks-2 { // further links are left out; they are more than any pod has
			continue
		}
		pod.Links = append(pod.Links, trace.Link{Name: name, Addresses: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 245, byte(i), 2}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 4: 0x02, 5: 0x45, 7: byte(i), 15: 2}), 64),
		}})
	}
	return world
}

// linksOf are names of links such that conditions on a link that differ are told apart by one: those that the plan names, for each pattern
// one more that begins so, and one that no condition names. There are none when the plan names lo at most.
func linksOf(plan *interception.Plan) []linkName {
	names := named(plan)
	var links []linkName
	for _, name := range names {
		if stem, pattern := strings.CutSuffix(string(name), "*"); pattern {
			if fresh, ok := freshName(names, stem); ok {
				links = append(links, fresh)
			}
		} else {
			links = append(links, name)
		}
	}
	for device := range devices(plan) {
		if !slices.Contains(links, device) {
			links = append(links, device)
		}
	}
	if len(names) == 0 || len(names) == 1 && names[0] == loopback {
		return links
	}
	if other, ok := freshName(names, "other"); ok {
		links = append(links, other)
	}
	return links
}

// named are the names and patterns of links in the plan's conditions, each once.
func named(plan *interception.Plan) []linkName {
	var names []linkName
	add := func(m interception.Match) {
		for _, name := range slices.Concat(m.In.Set().Names(), m.Out.Set().Names()) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for table := range plan.Tables() {
		for _, e := range table.Entries {
			add(e.Match)
		}
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				add(r.Match)
			}
		}
	}
	return names
}

// freshName is a name that begins so, and that nothing but patterns which stem begins with are met by.
func freshName(names []linkName, stem string) (linkName, bool) {
	for suffix := range 100 {
		name := linkName(fmt.Sprintf("%s%d", stem, suffix))
		clash := slices.ContainsFunc(names, func(n linkName) bool {
			start, pattern := strings.CutSuffix(string(n), "*")
			return n == name || pattern && len(start) > len(stem) && strings.HasPrefix(string(name), start)
		})
		if !clash && name.Validate() == nil {
			return name, true
		}
	}
	return "", false
}

// devices yields the links that objects of the plan stand on.
func devices(plan *interception.Plan) func(yield func(linkName) bool) {
	return func(yield func(linkName) bool) {
		for _, object := range plan.Objects {
			var device linkName
			switch o := object.(type) {
			case interception.Route:
				device = o.Device
			case interception.Address:
				device = o.Device
			default:
				continue
			}
			if !yield(device) {
				return
			}
		}
	}
}

// standing is the namespace with the plans before its own.
func standing(world trace.World, plans []*interception.Plan) (trace.World, error) {
	if len(world.Namespaces) == 0 {
		return trace.World{}, fmt.Errorf("%w: it has no namespace: World makes one", trace.ErrWorld)
	}
	if len(world.Namespaces[0].Links) > maxLinks {
		return trace.World{}, fmt.Errorf("%w: its namespace has more than %d links", ErrTooLarge, maxLinks)
	}
	world.Namespaces = slices.Clone(world.Namespaces)
	world.Namespaces[0].Plans = slices.Concat(plans, world.Namespaces[0].Plans)
	return world, nil
}
