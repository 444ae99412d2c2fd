// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/collision"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
)

// ErrClash is wrapped by the error about numbers, names or addresses of a plan that another program
// uses on the host or in the namespace of the proxy: the agent has not applied that plan, or the
// other program has added a route to a table of the mesh since, and its packets may follow it.
var ErrClash = errors.New("the node's numbers are in use")

// mustNotClash refuses a plan where another program uses what the plan would, unless one with wires
// stands already. The chains of Istio's own agent do not count: they overwrite whole marks, but
// only of what the node itself sends, which no plan captures.
func (h *host) mustNotClash(ctx context.Context, plan *interception.Plan) error {
	state, err := h.o.Dataplane.Observe(ctx, h.o.Host, h.o.Owner)
	isLink := func(o interception.Object) bool {
		_, is := o.(interception.Link)
		return is
	}
	if err != nil || slices.ContainsFunc(state.Objects, isLink) {
		return err
	}
	return h.clash(ctx, h.o.Host, plan, state)
}

// mustFit refuses a proxy for whose plans another program has what they need, on the host or in the
// proxy's namespace. What its successor will need counts, too: the numbers of the other generation.
func (h *host) mustFit(ctx context.Context, p *proxy) error {
	next := p.Proxy
	next.Generation++
	next.Namespace = label(next.Generation)
	fits := func(in *interception.Netns, planned func(interception.Facts) (*interception.Plan, error)) error {
		facts, err := netfacts.Read(in)
		if err != nil {
			return err
		}
		plan, err := planned(facts)
		if err != nil {
			return err
		}
		state, err := h.o.Dataplane.Observe(ctx, in, h.o.Owner)
		if err != nil {
			return err
		}
		return h.clash(ctx, in, plan, state)
	}
	err := h.lookForFormer(ctx)
	if err == nil {
		err = fits(h.o.Host.With(p.Proxy.Namespace, p.netns), func(f interception.Facts) (*interception.Plan, error) {
			return ambient.NodePlan(p.Proxy, h.o.Numbers, f, h.o.Owner, next)
		})
	}
	if err == nil {
		err = fits(p.netns, func(f interception.Facts) (*interception.Plan, error) {
			return ambient.ProxyPlan(p.Proxy, h.o.Numbers, f, h.o.Owner)
		})
	}
	return err
}

// clash returns an error if other programs use in a namespace what a plan would.
func (h *host) clash(ctx context.Context, in *interception.Netns, plan *interception.Plan, seen interception.State) error {
	standing, err := h.standing(ctx, in, seen)
	if err != nil {
		return err
	}
	shared := collision.Find(plan, standing)
	if len(shared) == 0 {
		return nil
	}
	texts := make([]string, len(shared))
	for i, c := range shared {
		texts[i] = c.String()
	}
	return fmt.Errorf("%w: in %s, %s: have the other programs use something else, or capture the pods in their own namespaces "+
		"(ambient-mode in-pod)", ErrClash, in, strings.Join(texts, "; "))
}

// isOwn reports whether a chain is the agent's, written by package iptables: package nftables reads
// it as another program's.
func (h *host) isOwn(c interception.ForeignChain) bool {
	return c.Hook == "" && strings.HasPrefix(c.Name, strings.ToUpper(string(h.o.Owner))+"_")
}

// standing returns what other programs have in a namespace.
func (h *host) standing(ctx context.Context, in *interception.Netns, seen interception.State) (s collision.Standing, err error) {
	s.Chains = slices.Clone(seen.Foreign)
	for _, d := range h.o.TakeOver {
		state, err := d.Observe(ctx, in, h.o.Owner)
		if errors.Is(err, interception.ErrUnsupported) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("look for marks of other programs: %w", err)
		}
		s.Chains = append(s.Chains, state.Foreign...)
	}
	s.Chains = slices.DeleteFunc(s.Chains, func(c interception.ForeignChain) bool { return h.former.has(c) || h.isOwn(c) })
	others, err := othersOf(in, h.o.Owner)
	if err != nil {
		return s, err
	}
	for _, o := range others {
		switch o := o.(type) {
		case interception.Link:
			s.Links = append(s.Links, o.Name)
		case interception.Address:
			s.Addresses = append(s.Addresses, o.Prefix)
		case interception.Route:
			s.Routes = append(s.Routes, o)
		case interception.PolicyRule:
			s.PolicyRules = append(s.PolicyRules, o)
		}
	}
	s.UDPPorts, err = portsOf(in)
	s.UDPPorts = slices.DeleteFunc(s.UDPPorts, func(port interception.Port) bool { return hasTunnel(seen, port) })
	slices.Sort(s.UDPPorts)
	return s, err
}

// hasTunnel reports whether a tunnel of the owner has a port.
func hasTunnel(seen interception.State, port interception.Port) bool {
	return slices.ContainsFunc(seen.Objects, func(o interception.Object) bool {
		link, is := o.(interception.Link)
		return is && link.VXLAN != nil && link.VXLAN.Port == port
	})
}
