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

// World returns a pod in which every rule of the plans can have an effect: that of [trace.Sidecar],
// with an application that listens on port 8080, the proxy's listeners of all plans, a link for
// every other interface that a rule names and, if there are such, a link that no rule names. The
// plans are not in it.
func World(plans ...*interception.Plan) trace.World { return worldFor(plans, nil) }

// worldFor is [World] with addresses of eth0; nil means those of [trace.Sidecar].
func worldFor(plans []*interception.Plan, addresses []netip.Prefix) trace.World {
	together := &interception.Plan{} // a container for the rules only
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
		// Further links are left out; no pod has so many.
		if known || planned || i >= maxLinks-2 {
			continue
		}
		pod.Links = append(pod.Links, trace.Link{Name: name, Addresses: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 245, byte(i), 2}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 4: 0x02, 5: 0x45, 7: byte(i), 15: 2}), 64),
		}})
	}
	return world
}

// linksOf returns names of links that distinguish all conditions on links: those that the plan
// names, for each pattern one more name that it matches, and one that no condition matches. It
// returns no names if the plan names lo at most.
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
	for _, object := range plan.Objects {
		if device := deviceOf(object); device != "" && !slices.Contains(links, device) {
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

// deviceOf returns the link that an object belongs to or asks for; "" if there is none.
func deviceOf(object interception.Object) linkName {
	switch o := object.(type) {
	case interception.Route:
		return o.Device
	case interception.Address:
		return o.Device
	case interception.PolicyRule:
		return o.In
	default:
		return ""
	}
}

// named returns the distinct names and patterns of links in the plan's conditions.
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

// freshName returns a name that begins with stem, and that matches no name and no pattern longer
// than stem.
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

// prepare puts a subject before the plans of the world's first namespace. The engine walks all of
// it; package trace walks the same world without opaque rules.
func (q question) prepare(s subject, world trace.World, live *members) (*engine, trace.World, error) {
	if len(world.Namespaces) == 0 {
		return nil, world, fmt.Errorf("%w: it has no namespace: World makes one", trace.ErrWorld)
	}
	pod := world.Namespaces[0]
	if len(pod.Links) > maxLinks {
		return nil, world, fmt.Errorf("%w: its namespace has more than %d links", ErrTooLarge, maxLinks)
	}
	world.Namespaces = slices.Clone(world.Namespaces)
	world.Namespaces[0].Plans = slices.Concat(s.tracedPlans(), pod.Plans)
	if err := world.Validate(); err != nil {
		return nil, world, err
	}
	pod.Plans = slices.Concat(s.plans(), pod.Plans)
	live.known = pod.LiveSets
	e := newEngine(q, pod, live)
	e.doubting(s)
	e.crosses(s, world)
	return e, world, nil
}
