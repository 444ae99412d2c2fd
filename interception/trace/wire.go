// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Wire joins links: both ends of a veth pair, or all links at a bridge that is in no namespace of
// the world. A bridge with an address of its namespace is such a link, too: cni0 of the host, say,
// and eth0 of each pod.
type Wire struct {
	// Ends are the links, at least two. No link, and not lo, is at two wires.
	Ends []WireEnd
}

// WireEnd is a link at a [Wire].
type WireEnd struct {
	// Namespace is the namespace's name.
	Namespace string
	// Link is the link's name.
	Link interception.Interface
}

// wires returns all wires, those of the plans too, and by namespace the links that the plans of
// others make there.
func (w World) wires() ([]Wire, map[string][]Link) {
	wires, peers := slices.Clone(w.Wires), map[string][]Link{}
	for _, n := range w.Namespaces {
		for _, plan := range n.Plans {
			if plan == nil {
				continue // Validate says so
			}
			for link := range interception.ObjectsOf[interception.Link](plan) {
				to := slices.IndexFunc(w.Namespaces, func(o Namespace) bool { return link.Veth != nil && o.Name == link.Veth.Namespace })
				if to < 0 {
					continue
				}
				there := w.Namespaces[to].Name
				if _, exists := w.Namespaces[to].link(link.Veth.Peer); !exists {
					peers[there] = append(peers[there], Link{Name: link.Veth.Peer})
				}
				wires = append(wires, Wire{Ends: []WireEnd{{n.Name, link.Name}, {there, link.Veth.Peer}}})
			}
		}
	}
	return wires, peers
}

// validateWires checks that links exist, and are at one wire each.
func validateWires(wires []Wire, networks []*network) error {
	var taken []WireEnd
	for i, wire := range wires {
		if len(wire.Ends) < 2 {
			return fmt.Errorf("wire %d has %d ends: it joins two links at least", i, len(wire.Ends))
		}
		for _, end := range wire.Ends {
			if err := end.validate(networks); err != nil {
				return fmt.Errorf("wire %d: link %s of namespace %q: %w", i, end.Link, end.Namespace, err)
			}
			if slices.Contains(taken, end) {
				return fmt.Errorf("wire %d: link %s of namespace %q is at another wire, too: a link has one", i, end.Link, end.Namespace)
			}
			taken = append(taken, end)
		}
	}
	return nil
}

func (e WireEnd) validate(networks []*network) error {
	n := named(networks, e.Namespace)
	if n == nil {
		return errors.New("the world has no such namespace")
	}
	link, ok := n.link(e.Link)
	switch {
	case !ok:
		return errors.New("the namespace has no such link")
	case e.Link == loopback || link.tunnel().port != 0:
		return errors.New("lo and tunnels are at no wire")
	default:
		return nil
	}
}

// named returns the namespace with the name; nil if there is none.
func named(networks []*network, name string) *network {
	for _, n := range networks {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Crosses reports whether packets that leave the first namespace by a link go on in the world:
// whether the link is at a wire, or is a tunnel. Package proof uses it, too.
func (w World) Crosses(link interception.Interface) bool {
	if len(w.Namespaces) == 0 {
		return false
	}
	first := w.Namespaces[0].Routing()
	if l, ok := first.link(link); ok && len(w.Namespaces) > 1 && l.tunnel().port != 0 {
		return true
	}
	wires, _ := w.wires()
	return wireAt(wires, WireEnd{first.Name, link}) != nil
}

// wireAt returns the ends of the link's wire; nil if it is at none.
func wireAt(wires []Wire, end WireEnd) []WireEnd {
	for _, wire := range wires {
		if slices.Contains(wire.Ends, end) {
			return wire.Ends
		}
	}
	return nil
}
