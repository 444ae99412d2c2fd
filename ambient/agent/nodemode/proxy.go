// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/agent/internal/sockets"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// ErrProxy is wrapped by the error about a proxy's pod that is ready and cannot be used.
var ErrProxy = errors.New("the node's proxy cannot be used")

// proxy is a proxy's pod that has, or gets, interfaces on the host.
type proxy struct {
	record

	netns   *interception.Netns // nil until it is found after a start
	applied string              // the fingerprint of the plan that its namespace holds; empty before the first time
}

// is reports whether this is the proxy in a pod's present sandbox.
func (p *proxy) is(pod ambient.Pod) bool {
	return p.UID == pod.UID && (len(pod.Addresses) == 0 || slices.Equal(p.Proxy.Addresses, ofEachFamily(pod.Addresses)))
}

// has reports whether the proxy's pod has an address of a family.
func (p *proxy) has(family interception.Family) bool {
	return slices.ContainsFunc(p.Proxy.Addresses, func(a netip.Addr) bool { return interception.FamilyOf(a) == family })
}

// key is the key under which the proxy's namespace is watched.
func (p *proxy) key() string { return p.Proxy.Namespace }

// label names the namespace of the proxy of a generation.
func label(generation uint8) string { return fmt.Sprintf("proxy-%d", generation) }

// ofEachFamily returns the first address of each family, IPv4 before IPv6.
func ofEachFamily(all []netip.Addr) (own []netip.Addr) {
	for _, family := range families() {
		if i := slices.IndexFunc(all, func(a netip.Addr) bool { return interception.FamilyOf(a) == family }); i >= 0 {
			own = append(own, all[i])
		}
	}
	return own
}

// keep makes the proxy's namespace hold its plan.
func (p *proxy) keep(ctx context.Context, h *host) error {
	facts, err := netfacts.Read(p.netns)
	if err != nil {
		return err
	}
	plan, err := ambient.ProxyPlan(p.Proxy, h.numbers(), facts, h.o.Owner)
	if err == nil {
		_, _, err = h.keep(ctx, p.key(), p.netns, plan, p.applied != plan.Fingerprint())
	}
	if err != nil {
		return fmt.Errorf("keep the rules of the proxy %s/%s: %w", p.Namespace, p.Name, err)
	}
	p.applied = plan.Fingerprint()
	return nil
}

// remove removes the plan from the proxy's namespace. One that was not found has ended, or is
// another pod's.
func (p *proxy) remove(ctx context.Context, o *Options) error {
	if p.netns == nil {
		return nil
	}
	if err := o.Dataplane.Remove(ctx, p.netns, o.Owner); err != nil {
		return fmt.Errorf("remove the rules of the former proxy %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// listens returns the families in which a proxy has its listeners.
func (o *Options) listens(in *interception.Netns) ([]interception.Family, error) {
	return sockets.Served(in, o.Numbers.OutboundPort, o.Numbers.InboundPort, o.Numbers.TunnelPort)
}

// find finds and verifies the namespace of a proxy's pod.
func (o *Options) find(ctx context.Context, namespace, name string, pod ambient.Pod) (*interception.Netns, error) {
	found := o.Finder.FindAll(ctx, []podnetns.Pod{{
		Namespace: namespace, Name: name, UID: cmp.Or(roster.RuntimeUID(pod.Pod), pod.UID), HostNetwork: pod.HostNetwork, IPs: pod.Addresses,
	}})[0]
	if found.Err != nil {
		return nil, found.Err
	}
	return found.Found.Netns, nil
}

// open opens the namespace of a proxy's pod that is ready, and returns how to reach the proxy.
func (h *host) open(ctx context.Context, pod ambient.Pod) (p *proxy, err error) {
	fail := func(err error) (*proxy, error) { return nil, proxyError(pod, err) }
	if pod.HostNetwork {
		return fail(errors.New("it is in the node's own network, and this form of capture needs it to have one of its own"))
	}
	if len(pod.Addresses) == 0 {
		return fail(errors.New("it has no address"))
	}
	netns, err := h.o.find(ctx, pod.Namespace, pod.Name, pod)
	if err != nil {
		return fail(err)
	}
	p = &proxy{record: record{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Netns: netns.ID()}, netns: netns}
	if p.Proxy, err = h.reach(netns, ofEachFamily(pod.Addresses)); err == nil {
		err = h.mustListen(netns)
	}
	if err == nil {
		err = h.mustFit(ctx, p)
	}
	if err == nil {
		err = h.watch.Add(p.key(), netns)
	}
	if errors.Is(err, ErrClash) { // a look for clashes takes long
		h.refuse(pod.UID, proxyError(pod, err))
	}
	if err != nil {
		return fail(errors.Join(err, netns.Close()))
	}
	return p, nil
}

func proxyError(pod ambient.Pod, err error) error {
	return fmt.Errorf("%w: pod %s/%s is ready: %w", ErrProxy, pod.Namespace, pod.Name, err)
}

func (h *host) mustListen(in *interception.Netns) error {
	families, err := h.o.listens(in)
	if err == nil && len(families) == 0 {
		n := h.o.Numbers
		err = fmt.Errorf("it does not listen on the ports %d, %d and %d: see how it is configured", n.OutboundPort, n.InboundPort, n.TunnelPort)
	}
	return err
}

// reach says how the host reaches a proxy, in a generation that no other one has. It is odd if that
// of the present proxy is even, and the other way round: both have connections for some time.
func (h *host) reach(netns *interception.Netns, addresses []netip.Addr) (n ambient.NodeProxy, err error) {
	n = ambient.NodeProxy{Addresses: addresses, Way: h.o.Way, DNS: h.o.DNS}
	if len(h.proxies) > 0 {
		n.Generation = (h.proxies[0].Proxy.Generation + 1) % 2
	}
	for slices.ContainsFunc(h.proxies, func(p *proxy) bool { return p.Proxy.Generation == n.Generation }) {
		n.Generation += 2
	}
	n.Namespace = label(n.Generation)
	if n.MTU, err = mtuOf(netns, addresses[0]); err == nil && n.Way == ambient.WayVXLAN {
		n.Node, err = sourceTo(h.o.Host, addresses[0])
	}
	return n, errors.Join(err, n.Validate())
}

// refusals are the proxies that could not get interfaces and routes, by UID.
type refusals map[string]*refusal

// refusal says why a proxy could not get interfaces and routes, and when to try again.
type refusal struct {
	err      error
	failures upkeep.Series
	again    time.Time
}

// of returns why a proxy is not tried again yet; nil if it may be.
func (r refusals) of(uid string) error {
	if one := r[uid]; one != nil && time.Now().Before(one.again) {
		return one.err
	}
	return nil
}

// refuse notes that a proxy could not get interfaces and routes. The attempt itself has changed the
// host, which is no reason to try again at once.
func (h *host) refuse(uid string, err error) {
	one := h.refusals[uid]
	if one == nil {
		one = &refusal{failures: roster.Retries()}
	}
	one.err, one.again = err, time.Now().Add(one.failures.Next(time.Now()))
	h.refusals[uid] = one
}

// forget forgets the refusals of proxies that are not among these.
func (r refusals) forget(but []ambient.Pod) {
	maps.DeleteFunc(r, func(uid string, _ *refusal) bool {
		return !slices.ContainsFunc(but, func(pod ambient.Pod) bool { return pod.UID == uid })
	})
}

// close closes a proxy's namespace.
func (h *host) close(p *proxy) error {
	if p.netns == nil {
		return nil
	}
	h.watch.Remove(p.key())
	h.settings.forget(p.key())
	delete(h.intruders, p.key())
	err := p.netns.Close()
	p.netns = nil
	return err
}
