// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/nftables"
)

// makePlans makes the plans that node-ambient should make for the pods to enrol.
func (m *mesh) makePlans() error {
	pods, _ := m.enrolled()
	for _, p := range pods {
		overrides, _, err := ambient.Istio().Parse(p.Pod, ambient.DefaultOverrides(ambientSettings().DNS))
		if err != nil {
			return err
		}
		err = m.in(p.netns.Path(), func(netns *interception.Netns) error {
			facts, err := netfacts.Read(netns)
			if err == nil {
				p.plan, err = ambient.PodPlan(overrides, ambient.IstioNumbers(), facts, ambientconf.Owner)
			}
			return err
		})
		if err != nil {
			return err
		}
		p.plan = p.plan.Sparing() // the pod runs already
	}
	return nil
}

// in calls do with the namespace at a path, open; "" stands for the node's own.
func (m *mesh) in(path string, do func(*interception.Netns) error) error {
	netns, err := interception.HostNetns(interception.NetnsOptions{})
	if path != "" {
		netns, err = interception.OpenNetns(path, interception.NetnsOptions{})
	}
	if err != nil {
		return err
	}
	return errors.Join(do(netns), netns.Close())
}

// observe returns what node-ambient has in the namespace at a path, whatever it wrote that with.
func (m *mesh) observe(ctx context.Context, path string) (interception.State, error) {
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if err != nil {
		return interception.State{}, err
	}
	dataplane, err := choice.New(candidates...)
	if err != nil {
		return interception.State{}, err
	}
	var state interception.State
	err = m.in(path, func(netns *interception.Netns) (err error) {
		state, err = dataplane.Observe(ctx, netns, ambientconf.Owner)
		return err
	})
	return state, err
}

// holds returns an error if a pod does not have exactly the rules of a plan; nil stands for none.
func (m *mesh) holds(ctx context.Context, p *ambientPod, plan *interception.Plan) error {
	state, err := m.observe(ctx, p.netns.Path())
	if err != nil {
		return err
	}
	if err := compareRules(plan, state); err != nil {
		return fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// compareRules returns an error if the owner has something else than the plan. What other programs
// have does not count.
func compareRules(plan *interception.Plan, state interception.State) error {
	foreign := func(d interception.Drift) bool { return d.Kind == interception.DriftForeign }
	if drift := slices.DeleteFunc(interception.Diff(plan, state), foreign); len(drift) > 0 {
		return fmt.Errorf("the kernel does not have the rules that it should have: %v", drift)
	}
	return nil
}

// stillIn returns an error if one of the pods is in a set of the node.
func stillIn(state interception.State, pods map[netip.Addr]string) error {
	for name, members := range state.Owners {
		for address := range members {
			if pods[address] != "" {
				return fmt.Errorf("the node's set %s still has %s, of the pod %s", name, address, pods[address])
			}
		}
	}
	return nil
}

// nothingLeft returns an error if node-ambient has left rules in a pod, or a pod in the node's
// sets.
func (m *mesh) nothingLeft(ctx context.Context) error {
	for _, p := range m.pods {
		if err := m.holds(ctx, p, nil); err != nil {
			return err
		}
	}
	state, err := m.observe(ctx, "")
	if err != nil {
		return err
	}
	return stillIn(state, m.wiring().pods)
}
