// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/collision"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
)

// ErrClash is wrapped by the error about numbers, names or addresses of a plan that another program
// uses on the host or in the namespace of the proxy. The agent has not applied that plan, unless
// another proxy serves. A route that is added to a table of the mesh later is such an error, too.
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

// mustFit refuses a proxy if another program uses, on the host or in the proxy's namespace, what
// the proxy's plans need, or what those of its successor will need on the host. While another proxy
// has its wires, a clash on the host is only reported: without a successor, connections of pods
// would be refused once that proxy ends.
func (h *host) mustFit(ctx context.Context, p *proxy) error {
	h.clashLook = clashLook{p, time.Now()}
	err := h.clashOnHost(ctx, p.Proxy, p.netns)
	if len(h.found()) > 0 {
		err = h.noteClash(err)
	}
	if err == nil {
		err = h.fits(ctx, p.netns, func(f interception.Facts) (*interception.Plan, error) {
			return ambient.ProxyPlan(p.Proxy, h.o.Numbers, f, h.o.Owner)
		})
	}
	return err
}

// clashOnHost returns an error if other programs use what the host needs for a proxy and its
// successor.
func (h *host) clashOnHost(ctx context.Context, p ambient.NodeProxy, netns *interception.Netns) error {
	next := p
	next.Generation++
	next.Namespace = label(next.Generation)
	if err := h.lookForFormer(ctx); err != nil {
		return err
	}
	return h.fits(ctx, h.o.Host.With(p.Namespace, netns), func(f interception.Facts) (*interception.Plan, error) {
		return ambient.NodePlan(p, h.o.Numbers, f, h.o.Owner, next)
	})
}

// noteClash notes a clash on a host whose rules stand, or that there is none, and returns other
// errors.
func (h *host) noteClash(err error) error {
	switch {
	case errors.Is(err, ErrClash):
		h.intruders[clashKey], err = fmt.Errorf("%w: %w", errIntruder, err), nil
	case err == nil:
		delete(h.intruders, clashKey)
	}
	return err
}

// lookAtClash looks for clashes on a host whose rules stand: once for each proxy, as after a start,
// and in rounds of Options.SettingsRound while a clash is noted. A look takes long.
func (h *host) lookAtClash(ctx context.Context) error {
	first := h.first()
	if first == nil || first.netns == nil || !h.ready {
		return nil
	}
	isNoted := h.intruders[clashKey] != nil && time.Since(h.clashLook.at) >= h.o.SettingsRound
	if first == h.clashLook.of && !isNoted {
		return nil
	}
	h.clashLook = clashLook{first, time.Now()}
	return h.noteClash(h.clashOnHost(ctx, first.Proxy, first.netns))
}

// clashLook says for which proxy, and when, the agent last looked for clashes on the host.
type clashLook struct {
	of *proxy
	at time.Time
}

// fits returns an error if other programs use in a namespace what a plan needs.
func (h *host) fits(ctx context.Context, in *interception.Netns, planned func(interception.Facts) (*interception.Plan, error)) error {
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
			if !hasAddress(seen, o) {
				s.Addresses = append(s.Addresses, o.Prefix)
			}
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

// hasAddress reports whether an address is the owner's, which kernels before Linux 5.18 do not
// remember by themselves.
func hasAddress(seen interception.State, address interception.Address) bool {
	return slices.ContainsFunc(seen.Objects, func(o interception.Object) bool {
		own, is := o.(interception.Address)
		return is && own.Prefix == address.Prefix && own.Device == address.Device
	})
}

// hasTunnel reports whether a tunnel of the owner has a port.
func hasTunnel(seen interception.State, port interception.Port) bool {
	return slices.ContainsFunc(seen.Objects, func(o interception.Object) bool {
		link, is := o.(interception.Link)
		return is && link.VXLAN != nil && link.VXLAN.Port == port
	})
}
