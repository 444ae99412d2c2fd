// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient/collision"
	"github.com/meshcni/meshcni/interception"
)

// ErrClash is wrapped by the error about numbers, names or addresses of the plan that another
// program uses on the host. The agent has not applied that plan.
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
	standing, err := h.standing(ctx, state.Foreign)
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
	return fmt.Errorf("%w: %s: have the other programs use something else, or capture the pods in their own namespaces (ambient-mode in-pod)",
		ErrClash, strings.Join(texts, "; "))
}

// isOwn reports whether a chain is the agent's, written by package iptables: package nftables reads
// it as another program's.
func (h *host) isOwn(c interception.ForeignChain) bool {
	return c.Hook == "" && strings.HasPrefix(c.Name, strings.ToUpper(string(h.o.Owner))+"_")
}

// standing returns what other programs have on the host.
func (h *host) standing(ctx context.Context, chains []interception.ForeignChain) (s collision.Standing, err error) {
	s.Chains = chains
	for _, d := range h.o.TakeOver {
		state, err := d.Observe(ctx, h.o.Host, h.o.Owner)
		if errors.Is(err, interception.ErrUnsupported) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("look for marks of other programs: %w", err)
		}
		s.Chains = append(s.Chains, state.Foreign...)
	}
	s.Chains = slices.DeleteFunc(s.Chains, func(c interception.ForeignChain) bool { return h.former.has(c) || h.isOwn(c) })
	others, err := othersOf(h.o.Host, h.o.Owner)
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
	s.UDPPorts, err = portsOf(h.o.Host)
	slices.Sort(s.UDPPorts)
	return s, err
}
