// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/internal/tally"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/internal/notice"
)

// host keeps the rules of the node's namespace and of the proxies' namespaces. Apart from members
// and back, the agent's loop alone uses it.
type host struct {
	o       *Options
	watch   *notice.Watch
	tally   *tally.Tally // of the node's rules and members
	members members
	probes  probes

	proxies  []*proxy              // those of the state file; the first one gets new connections
	none     bool                  // unless no proxy does, so that all of them are former ones
	refusals refusals              // of proxies that are none of them
	ready    bool                  // the plans stand
	listens  bool                  // and the first proxy has its listeners
	serves   []interception.Family // and these are its families
	applied  string                // the fingerprint of the host's plan as it was applied last
	own      map[netip.Addr]bool

	former    former
	alone     atomic.Bool           // Agent.Alone was called
	shared    map[netip.Addr]string // the members of the sets of shared pods, with their owners
	settings  settings
	intruders intrusions
	clashLook clashLook
	back      map[netip.Addr]string // lost members that are to be put back; the agent's mu guards them
	began     time.Time             // when the proxies of the state file were looked for first
	draining  time.Time             // since when everything is to be removed; zero if it is not
}

// hostKey is the key under which the host's namespace is watched.
const hostKey = "host"

// first returns the proxy that gets new connections; nil if none does.
func (h *host) first() *proxy {
	if h.none || len(h.proxies) == 0 {
		return nil
	}
	return h.proxies[0]
}

// others returns the proxies that keep the connections that they have.
func (h *host) others() []*proxy {
	return slices.DeleteFunc(slices.Clone(h.proxies), func(p *proxy) bool { return p == h.first() })
}

// found returns the proxies whose namespaces are open.
func (h *host) found() []*proxy {
	return slices.DeleteFunc(slices.Clone(h.proxies), func(p *proxy) bool { return p.netns == nil })
}

// set makes these the proxies. The first one gets new connections, and may be nil: then no proxy
// does. The others keep those that they have. It returns the members that other programs have taken
// away, with their owners. What leaves a proxy's namespace leaves it before the host forgets the
// proxy: an agent that follows this one finishes that.
func (h *host) set(ctx context.Context, first *proxy, others []*proxy) (lost map[netip.Addr]string, err error) {
	proxies := others
	if first != nil {
		proxies = append([]*proxy{first}, others...)
	}
	for _, p := range h.proxies {
		if !slices.Contains(proxies, p) {
			if err := p.remove(ctx, h.o); err != nil {
				return nil, err
			}
		}
	}
	records := make([]record, len(proxies))
	for i, p := range proxies {
		records[i] = p.record
	}
	if err := h.o.writeState(records, first == nil); err != nil {
		return nil, err
	}
	former := h.proxies
	h.proxies, h.none = proxies, first == nil
	lost, err = h.restore(ctx)
	for _, p := range former {
		if !slices.Contains(proxies, p) {
			err = errors.Join(err, h.close(p))
		}
	}
	return lost, err
}

// restore makes the host and the proxies' namespaces hold their plans, in the order in which the
// proxies' interfaces come about, and reads the members of the sets. The error may be about another
// proxy than the first one, while the host is ready.
func (h *host) restore(ctx context.Context) (lost map[netip.Addr]string, err error) {
	h.ready = false
	if lost, err = h.restoreNode(ctx); err != nil {
		return nil, err
	}
	var failed error
	for _, p := range h.found() {
		err := p.keep(ctx, h)
		if err != nil && p == h.first() {
			return lost, err
		}
		failed = errors.Join(failed, err)
	}
	if h.own, err = addressesOf(h.o.Host); err != nil {
		return lost, errors.Join(failed, err)
	}
	h.ready, h.probes.looked = true, time.Now()
	return lost, failed
}

// restoreNode makes the host hold its plan, and reads the members of the sets.
func (h *host) restoreNode(ctx context.Context) (lost map[netip.Addr]string, err error) {
	handle, plan, err := h.standingPlan(ctx)
	if err != nil {
		return nil, err
	}
	state, changed, err := h.keep(ctx, hostKey, handle, plan, h.applied != plan.Fingerprint())
	drifted := changed && h.applied == plan.Fingerprint()
	if drifted {
		h.o.count(agent.CountDrift, "host", 1)
	}
	if err != nil {
		h.applied = ""
		return nil, fmt.Errorf("keep the rules of the node: %w", err)
	}
	if drifted {
		h.o.count(agent.CountHealed, "host", 1)
	}
	h.applied = plan.Fingerprint()
	lost = h.members.take(func(set interception.SetName) bool { _, is := plan.Set(set); return is }, state)
	h.takeShared(state)
	h.o.count(agent.CountDrift, "sets", len(lost))
	return lost, nil
}

// plan returns the plan for the host with these proxies, and the handle that it needs. No other
// program may use the numbers of the first one; those of a proxy that comes later are for mustFit.
func (h *host) plan(ctx context.Context, proxies []*proxy) (*interception.Netns, *interception.Plan, error) {
	facts, err := netfacts.Read(h.o.Host)
	if err == nil {
		err = h.lookForFormer(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	handle, all := h.o.Host, []ambient.NodeProxy{}
	if first := h.first(); first == nil || !slices.Contains(proxies, first) {
		all = append(all, ambient.NodeProxy{})
	}
	for _, p := range proxies {
		all = append(all, p.Proxy)
		if p.netns != nil {
			handle = handle.With(p.Proxy.Namespace, p.netns)
		}
	}
	if h.applied == "" {
		alone, err := ambient.NodePlan(all[0], h.o.Numbers, facts, h.o.Owner, all[1:]...)
		if err == nil {
			err = h.mustNotClash(ctx, alone)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	plan, err := ambient.NodePlan(all[0], h.numbers(), facts, h.o.Owner, all[1:]...)
	return handle, plan, err
}

// standingPlan returns the plan that the host is to hold, with the handle that it needs. A proxy
// may not have been found since the start. As long as its wires and all else stand, they are left
// alone, since its connections may go on. Otherwise the plan is without them if they are veths,
// which cannot be written without the proxy's namespace. If the proxy got new connections, those
// are refused then.
func (h *host) standingPlan(ctx context.Context) (*interception.Netns, *interception.Plan, error) {
	handle, plan, err := h.plan(ctx, h.proxies)
	if err != nil || len(h.found()) == len(h.proxies) {
		return handle, plan, err
	}
	seen, err := h.o.Dataplane.Observe(ctx, handle, h.o.Owner)
	if err != nil || len(h.drifts(plan, seen)) == 0 {
		return handle, plan, err
	}
	unwritable := func(p *proxy) bool { return p.netns == nil && p.Proxy.Way == ambient.WayVeth }
	return h.plan(ctx, slices.DeleteFunc(slices.Clone(h.proxies), unwritable))
}

// drifts returns what the agent has to mend. What other programs have is not its to change, and
// where a link of a proxy that was not found ends cannot be seen.
func (h *host) drifts(plan *interception.Plan, seen interception.State) []interception.Drift {
	unseen := map[interception.RuleID]bool{}
	for link := range interception.ObjectsOf[interception.Link](plan) {
		for _, p := range h.proxies {
			if p.netns == nil && link.Veth != nil && link.Veth.Namespace == p.Proxy.Namespace {
				unseen[link.ID] = true
			}
		}
	}
	return slices.DeleteFunc(interception.Diff(plan, seen), func(d interception.Drift) bool {
		return d.Kind == interception.DriftForeign || d.Kind == interception.DriftChanged && unseen[d.ID]
	})
}

// keep applies a plan where the namespace does not hold it. It returns what was seen before, and
// whether that differed and may be healed now. A plan that is new need not wait.
func (h *host) keep(
	ctx context.Context, key string, in *interception.Netns, plan *interception.Plan, isNew bool,
) (seen interception.State, changed bool, err error) {
	if seen, err = h.o.Dataplane.Observe(ctx, in, h.o.Owner); err != nil {
		return seen, false, err
	}
	h.intruders.note(key, in, seen)
	drifts := h.drifts(plan, seen)
	changed = h.settings.mayHeal(key, drifts, isNew, h.o.SettingsRound) && len(drifts) > 0
	if changed {
		err = h.o.Dataplane.Apply(ctx, in, plan)
	}
	if changed && err == nil && key == hostKey {
		h.tally.Recount(ctx)
	}
	return seen, changed, err
}

// counter returns what counts the node's rules and members of which the kernel sends no notice; nil
// if the dataplane cannot count.
func (h *host) counter() func(context.Context) (string, error) {
	tallier, is := h.o.Dataplane.(agent.Tallier)
	if !is {
		return nil
	}
	var sets []interception.SetName
	for _, family := range families() {
		sets = append(sets, ambient.MeshedSet(family), ambient.FormerCapture{}.SharedSet(family))
	}
	return func(ctx context.Context) (string, error) { return tallier.Tally(ctx, h.o.Host, h.o.Owner, sets...) }
}

// see reads the members of the sets, and changes nothing.
func (h *host) see(ctx context.Context) error {
	state, err := h.o.Dataplane.Observe(ctx, h.o.Host, h.o.Owner)
	if err != nil {
		return fmt.Errorf("see which pods the node captures: %w", err)
	}
	h.members.take(func(name interception.SetName) bool {
		return slices.ContainsFunc(state.Objects, func(o interception.Object) bool {
			set, is := o.(interception.Set)
			return is && set.Name == name
		})
	}, state)
	h.takeShared(state)
	return nil
}

// clear removes everything from the host and from the proxies' namespaces, and the state file last.
func (h *host) clear(ctx context.Context) error {
	h.ready, h.applied = false, ""
	clear(h.intruders)
	if err := h.o.Dataplane.Remove(ctx, h.o.Host, h.o.Owner); err != nil {
		return fmt.Errorf("remove the rules of the node: %w", err)
	}
	h.members.forget()
	h.shared = nil
	for len(h.proxies) > 0 {
		if err := errors.Join(h.proxies[0].remove(ctx, h.o), h.close(h.proxies[0])); err != nil {
			return err
		}
		h.proxies = h.proxies[1:]
	}
	return h.o.removeState()
}

// look looks for the listeners of the proxy that gets new connections, and reports whether these,
// or the families that it serves, are news.
func (h *host) look() (changed bool, err error) {
	listened, served := h.listens, h.serves
	h.listens, h.serves = false, nil
	first := h.first()
	if h.ready && first != nil && first.netns != nil {
		h.serves, err = h.o.listens(first.netns)
		h.listens = len(h.serves) > 0
		h.serves = slices.DeleteFunc(h.serves, func(f interception.Family) bool { return !first.has(f) })
	}
	return h.listens != listened || !slices.Equal(h.serves, served), err
}

// edit edits the sets.
func (h *host) edit(ctx context.Context, addresses []netip.Addr, change func(*interception.SetEdit, netip.Addr)) error {
	for _, family := range families() {
		edit := interception.SetEdit{Add: map[netip.Addr]string{}, Remove: map[netip.Addr]string{}}
		for _, address := range h.members.kept(addresses) {
			if interception.FamilyOf(address) == family {
				change(&edit, address)
			}
		}
		if len(edit.Add)+len(edit.Remove) == 0 {
			continue
		}
		if err := h.o.Sets.UpdateSet(ctx, h.o.Host, h.o.Owner, ambient.MeshedSet(family), edit); err != nil {
			h.members.doubt()
			return fmt.Errorf("edit the set of meshed pods: %w", err)
		}
		h.members.edited(edit)
		h.o.count(agent.CountEdit, "add", len(edit.Add))
		h.o.count(agent.CountEdit, "remove", len(edit.Remove))
	}
	return nil
}
