// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/ambient/zds"
)

// meshAgent knows the pods of the node, takes them out of the mesh, and looks at one again.
type meshAgent interface {
	Status(uids ...string) agent.Status
	Withdraw(ctx context.Context, progress func(agent.Pod), uids ...string) error
	Readmit()
	Look(uid string)
}

// insider sees what other programs have in a pod's namespace.
type insider interface {
	Foreign(ctx context.Context, uid string) ([]agent.ForeignChain, error)
}

// keeper answers operators with what the agent knows.
type keeper struct {
	agent  meshAgent
	inside insider // nil if the agent enters no pods
	pods   *feed.Client
	host   func() string // why the host is not as it should be
}

// Pods implements [event.Keeper]. Of a selection it also tells what other programs have in the
// pods.
func (k keeper) Pods(ctx context.Context, of event.Selection) (event.Node, error) {
	node := k.node(of)
	if of != (event.Selection{}) && k.inside != nil {
		k.addForeign(ctx, node.Pods)
	}
	return node, nil
}

// node returns what the agent knows of the pods of a selection.
func (k keeper) node(of event.Selection) event.Node {
	var uids []string
	if of.UID != "" { // the daemon asks about no pod every few seconds, which has to cost next to nothing
		uids = []string{of.UID}
	}
	status := k.agent.Status(uids...)
	node := event.Node{
		Complete: status.Complete, Withdrawn: status.Withdrawn, Proxy: proxyState(status.Proxy), Host: k.host(), Pods: []event.PodState{},
	}
	for _, pod := range status.Pods {
		if state := podState(pod); of.Matches(state) {
			node.Pods = append(node.Pods, state)
		}
	}
	return node
}

// foreignTime is how long an answer about a pod waits for the agent to look at the pod's chains.
const foreignTime = time.Second

// addForeign adds the chains of other programs to the states of pods.
func (k keeper) addForeign(ctx context.Context, pods []event.PodState) {
	ctx, cancel := context.WithTimeout(ctx, foreignTime)
	defer cancel()
	for i := range pods {
		chains, err := k.inside.Foreign(ctx, pods[i].UID)
		if err != nil {
			pods[i].ForeignError = err.Error()
		}
		for _, c := range chains {
			pods[i].Foreign = append(pods[i].Foreign, event.ForeignChain(c))
		}
	}
}

// Withdraw implements [event.Keeper].
func (k keeper) Withdraw(ctx context.Context, of event.Selection, out func(event.PodState)) (left []event.PodState, err error) {
	var uids []string
	if of != (event.Selection{}) {
		node := k.node(of)
		if len(node.Pods) == 0 {
			return nil, &event.Error{
				Code: event.CodeUnknownPod, Message: "the agent knows no such pod on this node: see its name, and whether the pod is here",
			}
		}
		for _, pod := range node.Pods {
			uids = append(uids, pod.UID)
		}
	}
	err = k.agent.Withdraw(ctx, func(pod agent.Pod) { out(podState(agent.PodStatus{Pod: pod})) }, uids...)
	if still, is := errors.AsType[*agent.LeftError](err); is {
		for _, pod := range still.Pods {
			left = append(left, podState(agent.PodStatus{Pod: pod}))
		}
		return left, &event.Error{
			Code: event.CodeUnfinished, Message: fmt.Sprintf("%d pods are still in the mesh, and the agent goes on with them", len(left)),
		}
	}
	if err != nil {
		return nil, &event.Error{Code: codeOf(err), Message: err.Error()}
	}
	// The daemon's uninstall withdraws all pods, and then ends this process and the source of the
	// feed.
	if err := k.pods.AwaitAnnotated(ctx, uids...); err != nil {
		return nil, &event.Error{
			Code: event.CodeUnfinished, Message: "the pods are out of the mesh, and their annotations do not say so yet: " + err.Error(),
		}
	}
	return nil, nil
}

// Readmit implements [event.Keeper].
func (k keeper) Readmit(context.Context) error {
	k.agent.Readmit()
	return nil
}

func proxyState(s zds.Status) event.ProxyState {
	state := event.ProxyState{Connections: s.Connections}
	switch {
	case s.Connections > 0:
		state.Connection, state.Since = event.ProxyConnected, s.Connected
	case !s.Lost.IsZero():
		state.Connection, state.Since = event.ProxyLost, s.Lost
	default:
		state.Connection = event.ProxyNeverConnected
	}
	if s.Err != nil {
		state.Error = s.Err.Error()
	}
	return state
}

func podState(p agent.PodStatus) event.PodState {
	state := event.PodState{
		UID: p.UID, RuntimeUID: p.RuntimeUID, Namespace: p.Namespace, Name: p.Name, Addresses: p.Addresses, Annotation: string(p.Annotation),
		Eligible: p.Decision.Capture, Reason: p.Decision.Reason, Detail: p.Decision.Detail,
	}
	if p.Since.IsZero() {
		return state
	}
	state.Managed, state.Since = true, p.Since.Round(time.Millisecond)
	state.Rules, state.Listeners, state.InSets = p.Seen.Rules.String(), p.Seen.Proxy.String(), p.Seen.InSets
	state.Status, state.Step = string(p.Seen.Status), string(p.Step)
	if p.Err != nil {
		state.Error = p.Err.Error()
	}
	for _, warning := range p.Warnings {
		state.Warnings = append(state.Warnings, warning.String())
	}
	if refusal, is := errors.AsType[*zds.AwaitError](p.Err); is {
		state.Refusal = refusal.Text
	}
	return state
}
