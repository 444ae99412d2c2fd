// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// keepHost chooses the proxy, brings the host and the proxies' namespaces where they should be, and
// looks for the proxy's listeners. The error may be about a proxy that is not used yet, while the
// host is right.
func (a *Agent) keepHost(ctx context.Context) error {
	uncounted := a.host.tally.Begin(ctx)
	unfound, err := a.reopen(ctx)
	if err == nil && a.mayClear() {
		err = unfound // nothing of the agent is to be left in that namespace
	}
	if err != nil {
		return err
	}
	if a.mayClear() {
		return errors.Join(a.clear(ctx), a.look())
	}
	want, unusable := a.choose(ctx)
	a.host.draining = time.Time{}
	err = errors.Join(a.host.renumber(), a.change(ctx, want))
	if ctx.Err() != nil {
		return err // and nothing was seen of the proxy
	}
	if err = errors.Join(unfound, err, a.look(), unusable, a.takeOver(ctx), a.host.lookAtClash(ctx)); err == nil {
		err = cmp.Or(errors.Join(a.host.settings.err(), a.host.intruders.err()), a.unnoticed(uncounted))
	}
	return err
}

// unnoticed says what a failed count means.
func (a *Agent) unnoticed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w for %s: %w", agent.ErrUncounted, a.options.Round, err)
}

// look looks for the proxy's listeners. All pods look again when that is news.
func (a *Agent) look() error {
	changed, err := a.host.look()
	if !changed {
		return err
	}
	a.mu.Lock()
	isNew := a.proxyState.listens != a.host.listens // otherwise it serves other families
	if isNew {
		a.proxyState.listens, a.proxyState.since = a.host.listens, time.Now()
	}
	for _, e := range a.entries {
		a.dueLocked(e)
	}
	a.mu.Unlock()
	if isNew {
		a.options.ObserveProxy(a.host.listens)
	}
	return err
}

// reopen opens the namespaces of the proxies of the state file, after a start. One whose pod is
// gone, or has another namespace, is forgotten: its interfaces have ended with the former
// namespace. The node does without a former proxy that is not found, and after some time without
// the first one, and unfound says why: it is looked for again.
func (a *Agent) reopen(ctx context.Context) (unfound, err error) {
	h := &a.host
	first := h.first()
	if h.began.IsZero() {
		h.began = time.Now()
	}
	for _, p := range slices.Clone(h.proxies) {
		if p.netns != nil {
			continue
		}
		pod, told, complete := a.told(p.UID)
		if complete && (!told || pod.Finished()) {
			h.drop(p)
			continue
		}
		is, err := a.reopenOne(ctx, p, pod)
		switch {
		case err != nil && p == first && time.Since(h.began) < unfoundRounds*a.options.ListenerRound:
			return nil, err
		case err != nil:
			unfound = errors.Join(unfound, err)
		case !is:
			h.drop(p)
		}
	}
	return unfound, nil
}

// unfoundRounds is for how many rounds of Options.ListenerRound after a start the agent changes
// nothing while it does not find the proxy that gets new connections. That proxy may serve.
const unfoundRounds = 5

// reopenOne opens the namespace of a proxy of the state file, and reports whether it is still the
// pod's.
func (a *Agent) reopenOne(ctx context.Context, p *proxy, pod ambient.Pod) (is bool, err error) {
	netns, err := a.locate(ctx, p, pod)
	if err != nil {
		return false, fmt.Errorf("find the proxy's pod %s/%s, which was the node's proxy before the start: %w", p.Namespace, p.Name, err)
	}
	if netns == nil {
		return false, nil
	}
	if err := a.host.watch.Add(p.key(), netns); err != nil {
		return false, errors.Join(err, netns.Close())
	}
	p.netns = netns
	return true, nil
}

// locate finds the namespace of a proxy of the state file: by the addresses that the feed tells of
// its pod, and then by those in the file, since either may be older than the sandbox. It returns
// nil if the pod has another namespace now. While everything is withdrawn, it also returns nil if
// no process of the pod is left.
func (a *Agent) locate(ctx context.Context, p *proxy, pod ambient.Pod) (netns *interception.Netns, err error) {
	pod.UID = p.UID
	for _, addresses := range [][]netip.Addr{pod.Addresses, p.Proxy.Addresses} {
		if pod.Addresses = addresses; len(addresses) == 0 {
			continue
		}
		if netns, err = a.host.o.find(ctx, p.Namespace, p.Name, pod); err == nil {
			break
		}
	}
	if err == nil && netns.ID() != p.Netns {
		return nil, netns.Close()
	}
	if refusal, is := errors.AsType[*podnetns.RefusalError](err); is {
		ended := slices.Contains([]podnetns.Obstacle{
			podnetns.ObstacleNotFound, podnetns.ObstacleVanished, podnetns.ObstacleUnproven,
		}, refusal.Obstacle)
		if refusal.Obstacle == podnetns.ObstacleAnotherAddress || ended && a.mayClear() {
			return nil, nil
		}
	}
	return netns, err
}

// drop forgets a proxy that is gone. If it got new connections, no other one gets them for that.
func (h *host) drop(p *proxy) {
	h.none = h.none || p == h.first()
	h.proxies = slices.DeleteFunc(h.proxies, func(o *proxy) bool { return o == p })
}

// choose returns the proxy that should get new connections; nil if none. The error says which newer
// proxies cannot be used.
func (a *Agent) choose(ctx context.Context) (want *proxy, unusable error) {
	candidates, present, complete := a.candidates()
	h := &a.host
	if !complete {
		return h.first(), nil
	}
	h.refusals.forget(present)
	h.readdress(ctx, present)
	for _, pod := range candidates {
		p, err := h.usable(ctx, pod)
		if err == nil {
			return p, unusable
		}
		unusable = errors.Join(unusable, err)
	}
	if first := h.first(); first != nil && slices.ContainsFunc(present, func(pod ambient.Pod) bool {
		return first.is(pod) || first.UID == pod.UID && !h.isReplaced(ctx, first, pod)
	}) {
		return first, unusable // it is there, and no other one is ready
	}
	return nil, unusable
}

// readdress gives each proxy the addresses that its pod has got in the same sandbox.
func (h *host) readdress(ctx context.Context, present []ambient.Pod) {
	for _, p := range h.found() {
		i := slices.IndexFunc(present, func(pod ambient.Pod) bool { return pod.UID == p.UID })
		if i < 0 || p.is(present[i]) {
			continue
		}
		if same, err := h.isSame(ctx, p, present[i]); err != nil || !same {
			continue
		}
		next := p.Proxy
		next.Addresses = ofEachFamily(present[i].Addresses)
		if next.Validate() == nil { // a tunnel may need an address that is gone
			p.Proxy = next
		}
	}
}

// renumber gives each tunnel the address that the node has now. The way to a former proxy may be
// gone, whose tunnel then stays as it is.
func (h *host) renumber() (err error) {
	for _, p := range h.found() {
		if p.Proxy.Way != ambient.WayVXLAN {
			continue
		}
		next := p.Proxy
		var failed error
		if next.Node, failed = sourceTo(h.o.Host, p.Proxy.Addresses[0]); failed == nil {
			failed = next.Validate()
		}
		if failed == nil {
			p.Proxy = next
		} else if p == h.first() {
			err = failed
		}
	}
	return err
}

// usable returns the proxy of a pod that is ready: the first one, another one that has interfaces,
// or one that has none yet.
func (h *host) usable(ctx context.Context, pod ambient.Pod) (*proxy, error) {
	p := h.of(pod)
	isFirst := p != nil && p == h.first()
	if isFirst && (h.listens || !h.ready || !h.isReplaced(ctx, p, pod)) {
		return p, nil
	}
	if err := h.refusals.of(pod.UID); err != nil {
		return nil, err
	}
	if p == nil || isFirst || p.netns == nil || h.isReplaced(ctx, p, pod) {
		return h.open(ctx, pod)
	}
	if err := h.mustListen(p.netns); err != nil {
		return nil, proxyError(pod, err)
	}
	return p, nil
}

// of returns the proxy of a pod; nil if it has none.
func (h *host) of(pod ambient.Pod) *proxy {
	if i := slices.IndexFunc(h.proxies, func(p *proxy) bool { return p.is(pod) }); i >= 0 {
		return h.proxies[i]
	}
	return nil
}

// isReplaced reports whether a proxy's pod has another namespace since.
func (h *host) isReplaced(ctx context.Context, p *proxy, pod ambient.Pod) bool {
	same, err := h.isSame(ctx, p, pod)
	return err == nil && !same
}

// isSame reports whether a proxy's pod has the namespace that it had.
func (h *host) isSame(ctx context.Context, p *proxy, pod ambient.Pod) (bool, error) {
	netns, err := h.o.find(ctx, pod.Namespace, pod.Name, pod)
	if err != nil {
		return false, err
	}
	same := netns.ID() == p.Netns
	_ = netns.Close() // nothing was written
	return same, nil
}

// candidates returns the proxies' pods that are ready, the newest first, and those that are there
// at all, and whether the feed is complete.
func (a *Agent) candidates() (ready, present []ambient.Pod, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range a.roster.Pods {
		if !a.options.Policy.IsProxy(pod) || pod.Finished() {
			continue
		}
		present = append(present, pod)
		if pod.Ready {
			ready = append(ready, pod)
		}
	}
	slices.SortFunc(ready, func(a, b ambient.Pod) int {
		if byTime := b.Created.Compare(a.Created); byTime != 0 {
			return byTime
		}
		if a.UID < b.UID { // any order will do that is always the same
			return -1
		}
		return 1
	})
	return ready, present, a.roster.Complete
}

// change makes a proxy the one that gets new connections, or none: first it has interfaces and
// routes, and then the mark of new connections changes. The former one keeps its connections, and
// has its interfaces until its pod is gone or a third proxy comes. A proxy of the state file may
// lack its rules, because an earlier agent ended before it applied them: it is introduced again.
func (a *Agent) change(ctx context.Context, want *proxy) error {
	h := &a.host
	if want == nil {
		return a.set(ctx, nil, a.staying(nil, h.others())...)
	}
	if want != h.first() && (want.applied == "" || !slices.Contains(h.proxies, want)) {
		if err := a.introduce(ctx, want); err != nil {
			return err
		}
	}
	if present := h.first(); present != nil && present != want {
		if err := a.set(ctx, want, present); err != nil {
			return err
		}
	}
	return a.set(ctx, want, a.staying(want, h.proxies)...)
}

// staying returns the proxies among these that may still have connections, beside one that gets
// new ones.
func (a *Agent) staying(want *proxy, among []*proxy) []*proxy {
	return slices.DeleteFunc(slices.Clone(among), func(p *proxy) bool { return want != nil && p.UID == want.UID || !a.stays(p) })
}

// introduce gives a new proxy interfaces and routes. The present one, if there is one, goes on to
// get new connections. Without one the new proxy gets them at once, beside a former one. If that
// fails, all is as before, and it is tried again after a pause. A present proxy that has not been
// found since the start loses its wires by that.
func (a *Agent) introduce(ctx context.Context, want *proxy) error {
	h := &a.host
	present, others := h.first(), []*proxy(nil)
	first, beside := present, []*proxy{want}
	if present == nil {
		others = slices.Clone(h.proxies)
		first, beside = want, a.staying(want, others)
	}
	err := a.set(ctx, first, beside...)
	if err == nil {
		delete(h.refusals, want.UID)
		return nil
	}
	if ctx.Err() == nil && slices.Contains(h.proxies, want) {
		err = errors.Join(err, a.set(ctx, present, others...))
	}
	if !slices.Contains(h.proxies, want) {
		err = errors.Join(err, h.close(want))
	}
	h.refuse(want.UID, err)
	return err
}

// stays reports whether a former proxy may still have connections.
func (a *Agent) stays(p *proxy) bool {
	pod, told, complete := a.told(p.UID)
	return !complete || told && !pod.Finished()
}

// set is host.set, and has the pods look for members that they have lost. It puts back those of
// pods that the feed has not told of, and removes members that other programs have added.
func (a *Agent) set(ctx context.Context, first *proxy, others ...*proxy) error {
	lost, err := a.host.set(ctx, first, others)
	a.mu.Lock()
	a.keepMembersLocked()
	a.host.lose(lost)
	for _, uid := range lost {
		a.wakeLocked(uid)
	}
	if a.roster.Complete { // members of pods that are gone
		for _, uid := range a.host.members.pods() {
			if a.entries[uid] == nil {
				a.wakeLocked(uid)
			}
		}
	}
	strange := a.strangeLocked()
	a.mu.Unlock()
	if err = errors.Join(err, a.putBack(ctx)); err != nil || len(strange) == 0 {
		return err
	}
	return a.host.edit(ctx, strange, func(edit *interception.SetEdit, address netip.Addr) { edit.Remove[address] = "" })
}

// keepMembersLocked notes the pods that a retiring agent goes on with, once the members are known.
// The caller holds mu.
func (a *Agent) keepMembersLocked() {
	if !a.options.Retiring || a.kept != nil || !a.host.members.areKnown() {
		return
	}
	a.kept = map[string]bool{}
	for _, uid := range a.host.members.pods() {
		a.kept[uid] = true
	}
}

// strangeLocked returns the members without an owner that are no pod's, once the feed is complete.
// A pod that is enrolled takes its own over. The caller holds mu.
func (a *Agent) strangeLocked() []netip.Addr {
	if !a.roster.Complete {
		return nil
	}
	return slices.DeleteFunc(a.host.members.of(""), func(address netip.Addr) bool {
		for uid := range a.entries {
			if slices.Contains(a.roster.Pods[uid].Addresses, address) {
				return true
			}
		}
		return false
	})
}
