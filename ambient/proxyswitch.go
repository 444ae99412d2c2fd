// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// ProxySwitch leads a node that captures from one proxy to another, or from none, or to none.
type ProxySwitch struct {
	// All plans have this Owner and these Numbers.
	Owner   interception.Owner
	Numbers NodeNumbers
	// Node is the node's namespace, and Facts are the node's.
	Node  *interception.Netns
	Facts interception.Facts
	// Former is the proxy that the node's plan has, and Successor the one that it gets. They have
	// different generations. The zero value is no proxy. A former proxy whose namespace cannot be
	// opened any more is also none.
	Former, Successor ProxyPod
	// Fresh reports that the node has no plan yet. Then Former is the zero value, and a switch that
	// fails leaves no plan. Otherwise the node without a proxy has the plan for the zero NodeProxy.
	Fresh bool
}

// ProxyPod is a proxy of a node with its namespace.
type ProxyPod struct {
	// Proxy is the proxy.
	Proxy NodeProxy
	// Namespace is the network namespace of the proxy's pod, and Facts describe it.
	Namespace *interception.Netns
	Facts     interception.Facts
}

// Rollout returns the plans in an order in which captured connections never go to a proxy whose
// namespace is not ready, neither on the way there nor on the way back:
//
//  1. the node gets the successor's wires, and goes on to capture for the former proxy
//  2. the successor's namespace gets its plan
//  3. the node captures new connections for the successor
//  4. the former proxy's plan goes
//  5. the former proxy's wires go
//
// Connections through the former proxy end with the fourth step. A caller that lets them end before
// applies the first three of the steps, and later all of them. Without a successor, new connections
// of meshed pods fail from the third step on. The error wraps [ErrRollout], or comes from
// [NodePlan] or [ProxyPlan].
//
// Where both proxies are in one namespace, the second step replaces the former proxy's plan: until
// the third, captured connections fail.
func (s ProxySwitch) Rollout() (Rollout, error) {
	r := Rollout{Owner: s.Owner}
	if err := s.validate(); err != nil {
		return Rollout{}, err
	}
	b := rolloutBuilder{ProxySwitch: s, node: s.Former.labelled(s.Successor.labelled(s.Node))}
	former, successor := s.Former.Proxy, s.Successor.Proxy
	if !s.Fresh {
		b.capture(&r.Former, former)
	}
	b.serve(&r.Former, s.Former)
	if !successor.IsZero() {
		b.capture(&r.Steps, former, successor)
		b.serve(&r.Steps, s.Successor)
	}
	if !former.IsZero() {
		b.capture(&r.Steps, successor, former)
		if !s.inPlace() {
			r.Steps = append(r.Steps, RolloutStep{Namespace: s.Former.Namespace})
		}
	}
	b.capture(&r.Steps, successor)
	if b.err != nil {
		return Rollout{}, b.err
	}
	return r, nil
}

// inPlace reports whether both proxies are in one namespace, as when only their way changes.
func (s ProxySwitch) inPlace() bool {
	return s.Former.Namespace.Check() == nil && s.Successor.Namespace.Check() == nil && s.Former.Namespace.ID() == s.Successor.Namespace.ID()
}

func (s ProxySwitch) validate() error {
	former, successor := s.Former.Proxy, s.Successor.Proxy
	switch {
	case s.Fresh && !former.IsZero():
		return fmt.Errorf("%w: a node without a plan has no former proxy", ErrRollout)
	case former.IsZero() || successor.IsZero() || s.inPlace():
		return nil
	case former.Way == WayVeth && successor.Way == WayVeth && former.Namespace == successor.Namespace:
		return fmt.Errorf("%w: the namespaces of both proxies have the label %q: give each a label of its own", ErrRollout, former.Namespace)
	}
	return nil
}

// labelled returns the node's handle for plans with wires to the proxy.
func (p ProxyPod) labelled(node *interception.Netns) *interception.Netns {
	if p.Proxy.IsZero() || p.Proxy.Way != WayVeth {
		return node
	}
	return node.With(p.Proxy.Namespace, p.Namespace)
}

// rolloutBuilder collects steps up to the first error.
type rolloutBuilder struct {
	ProxySwitch

	node *interception.Netns
	err  error
}

func (b *rolloutBuilder) capture(to *[]RolloutStep, proxy NodeProxy, others ...NodeProxy) {
	if b.err == nil {
		plan, err := NodePlan(proxy, b.Numbers, b.Facts, b.Owner, others...)
		b.add(to, b.node, plan, err)
	}
}

func (b *rolloutBuilder) serve(to *[]RolloutStep, p ProxyPod) {
	if b.err == nil && !p.Proxy.IsZero() {
		plan, err := ProxyPlan(p.Proxy, b.Numbers, p.Facts, b.Owner)
		b.add(to, p.Namespace, plan, err)
	}
}

func (b *rolloutBuilder) add(to *[]RolloutStep, ns *interception.Netns, plan *interception.Plan, err error) {
	b.err = err
	*to = append(*to, RolloutStep{Namespace: ns, Plan: plan})
}
