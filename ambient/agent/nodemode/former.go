// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
)

// former is what the agent of Istio 1.18 to 1.20 has on the host.
type former struct {
	looked bool // for its rules, since the start
	taken  bool // the rules were there at the start, and have to go
	rules  []formerRules
}

// formerRules are the rules that one program has written, and the dataplane that removes them.
type formerRules struct {
	upstream.RecognisedNode

	dataplane agent.ForeignDataplane
}

// has reports whether a chain is one that Istio's agent has made.
func (f former) has(c interception.ForeignChain) bool {
	return c.Hook == "" && slices.ContainsFunc(f.rules, func(r formerRules) bool {
		return slices.ContainsFunc(r.Chains, func(of interception.ForeignChain) bool { return of.Table == c.Table && of.Name == c.Name })
	})
}

// setRemover removes ipsets that no rule names. The dataplane of package iptables does.
type setRemover interface {
	RemoveUnusedSets(ctx context.Context, ns *interception.Netns, names ...string) error
}

// lookForFormer looks for the rules of Istio's agent. Of several dataplanes that read the rules of
// one program, the one counts that decodes them best.
func (h *host) lookForFormer(ctx context.Context) error {
	best := map[upstream.Program]formerRules{}
	for _, d := range h.o.TakeOver {
		state, err := d.Observe(ctx, h.o.Host, h.o.Owner)
		if errors.Is(err, interception.ErrUnsupported) {
			continue // its programs are not there, such as in an image for nf_tables
		}
		if err != nil {
			return fmt.Errorf("look for rules of Istio's own agent: %w", err)
		}
		for _, found := range upstream.RecogniseNode(state.Foreign) {
			if known, is := best[found.Program]; !is || len(found.Differences) < len(known.Differences) {
				best[found.Program] = formerRules{found, d}
			}
		}
	}
	h.former.rules = nil
	for _, program := range []upstream.Program{upstream.ProgramIPTablesNFT, upstream.ProgramIPTablesLegacy} {
		if rules, is := best[program]; is {
			h.former.rules = append(h.former.rules, rules)
		}
	}
	if h.former.looked {
		return nil
	}
	h.former.taken = len(h.former.rules) > 0
	if !h.former.taken { // the agent that removed the rules may have ended right then
		if err := h.removeFormerSets(ctx); err != nil {
			return err
		}
	}
	h.former.looked = true
	return nil
}

// numbers returns those of the plan for the host, with what stands beside it.
func (h *host) numbers() ambient.NodeNumbers {
	n := h.o.Numbers
	for _, rules := range h.former.rules {
		n.Former = rules.Rules.Former()
	}
	n.Former.InPods = h.o.InPod != nil && !h.alone.Load()
	return n
}

// mayTakeOver reports whether the rules of Istio's agent can go: each pod that is to be in the mesh
// is captured by this agent, and none has a connection that the other one has captured.
func (a *Agent) mayTakeOver() (bool, error) {
	h := &a.host
	if !h.former.taken || len(h.former.rules) == 0 || !h.ready || !h.listens {
		return false, nil
	}
	pods, all := a.captured()
	if !all {
		return false, nil
	}
	busy, err := h.formerIsBusy(pods)
	return err == nil && !busy, err
}

// captured returns the addresses of the node's pods, and whether the feed is complete and each pod
// that is to be in the mesh is in the host's sets.
func (a *Agent) captured() (pods map[netip.Addr]bool, all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.roster.Complete || a.roster.Withdrawn.All {
		return nil, false
	}
	pods = map[netip.Addr]bool{}
	for uid, pod := range a.roster.Pods {
		if pod.Finished() || pod.HostNetwork {
			continue
		}
		for _, address := range pod.Addresses {
			pods[address] = true
		}
		if decision, known := a.decideLocked(uid); !known || decision.Capture && len(a.host.members.of(uid)) == 0 {
			return nil, false
		}
	}
	return pods, true
}

// formerIsBusy reports whether a pod has a connection that Istio's agent has captured. Its rules
// have one mark for all that they leave alone, and none for what they capture: that is any
// connection of a pod that is neither this agent's nor one with the node or a proxy.
func (h *host) formerIsBusy(pods map[netip.Addr]bool) (bool, error) {
	uncaptured := map[netip.Addr]bool{}
	for _, rules := range h.former.rules {
		uncaptured[rules.Rules.Proxy] = true
	}
	for _, p := range h.proxies {
		for _, address := range p.Proxy.Addresses {
			uncaptured[address] = true
		}
	}
	n := h.o.Numbers
	return h.hasConnection(interception.IPv4, func(c connection) bool {
		own := n.Outbound.Mark.Matches(c.mark) || n.Inbound.Mark.Matches(c.mark) || n.Opened.Matches(c.mark)
		ends := []netip.Addr{c.from, c.to, c.answers}
		leftAlone := slices.ContainsFunc(ends, func(end netip.Addr) bool { return h.own[end] || uncaptured[end] })
		return !own && !leftAlone && slices.ContainsFunc(ends, func(end netip.Addr) bool { return pods[end] })
	})
}

// takeOver removes what Istio's agent has on the host, once that is not needed any more. Policy
// rules, routes and tunnels go before the rules by which the agent recognises all that. Settings
// stay as they are: what they were before is not known.
func (a *Agent) takeOver(ctx context.Context) error {
	may, err := a.mayTakeOver()
	if err != nil || !may {
		return err
	}
	h := &a.host
	var errs []error
	for _, rules := range h.former.rules {
		if len(rules.Differences) > 0 {
			errs = append(errs, fmt.Errorf("%w: by %s on the node: %s: remove them, or what has changed them", agent.ErrUpstream, rules.Program,
				strings.Join(rules.Differences, "; ")))
			continue
		}
		errs = append(errs, h.removeFormer(ctx, rules))
	}
	err = errors.Join(append(errs, h.removeFormerSets(ctx))...)
	if err == nil {
		h.former.taken = false // rules that appear later are those of an agent that runs
		a.mu.Lock()
		a.hostDueLocked(0) // the plan need not have regard for them any more
		a.mu.Unlock()
	}
	return err
}

func (h *host) removeFormer(ctx context.Context, rules formerRules) error {
	network, err := rules.Rules.NetworkPlan(h.o.Owner)
	if err == nil {
		err = removeSame(h.o.Host, network.Objects)
	}
	if err == nil {
		err = rules.dataplane.RemoveForeign(ctx, h.o.Host, rules.Chains)
	}
	if err != nil {
		return fmt.Errorf("take over from Istio's own agent: %w", err)
	}
	return nil
}

func (h *host) removeFormerSets(ctx context.Context) error {
	for _, d := range h.o.TakeOver {
		if remover, can := d.(setRemover); can {
			if err := remover.RemoveUnusedSets(ctx, h.o.Host, string(upstream.NodePods)); err != nil {
				return fmt.Errorf("take over from Istio's own agent: %w", err)
			}
		}
	}
	return nil
}
