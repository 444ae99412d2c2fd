// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
)

// ambientAgent answers as node-ambient does.
type ambientAgent struct {
	node  event.Node
	stays string // the name of a pod that is not out in time
}

func (a *ambientAgent) Enrol(context.Context, event.Pod, *os.File) (interception.Decision, error) {
	return interception.Decision{}, nil
}

func (a *ambientAgent) Pods(_ context.Context, of event.Selection) (event.Node, error) {
	node := a.node
	node.Pods = []event.PodState{}
	for _, pod := range a.node.Pods {
		if of.Matches(pod) {
			node.Pods = append(node.Pods, pod)
		}
	}
	return node, nil
}

func (a *ambientAgent) Withdraw(ctx context.Context, of event.Selection, out func(event.PodState)) (left []event.PodState, err error) {
	node, err := a.Pods(ctx, of)
	for _, pod := range node.Pods {
		if pod.Name == a.stays {
			left = append(left, pod)
		} else {
			out(pod)
		}
	}
	if len(left) > 0 {
		err = &event.Error{Code: event.CodeUnfinished, Message: "1 pods are still in the mesh"}
	}
	return left, err
}

func (a *ambientAgent) Readmit(context.Context) error { return nil }

func servedPod() event.PodState {
	return event.PodState{
		UID: "7f0b", Namespace: "shop", Name: "web-0", Eligible: true, Reason: "selected", Detail: "selector 2", Managed: true, Rules: "planned",
		Listeners: "serves", InSets: true, Status: "enabled", Annotation: "enabled", Since: time.Unix(1700000000, 0),
	}
}

func refusedPod() event.PodState {
	pod := servedPod()
	pod.UID, pod.Name, pod.Listeners, pod.Rules, pod.Status, pod.InSets = "8a1c", "web-1", "untold", "none", "", false
	pod.Step, pod.Error, pod.Refusal = "tell", `pod 8a1c: the proxy refuses the pod: see its log (it says "no")`, "no"
	return pod
}

// serveAgent serves the socket of the node's agent until the test ends.
func (n *testNode) serveAgent(a *ambientAgent) {
	n.t.Helper()
	if err := os.MkdirAll(n.runDir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	server, err := event.Listen(n.t.Context(), filepath.Join(n.runDir, "pluginevent.sock"), event.Options{Enroller: a, Keeper: a})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
}

// rightAgent knows a pod that is as wanted, and one that is not in the mesh.
func rightAgent() *ambientAgent {
	return &ambientAgent{node: event.Node{
		Complete: true, Proxy: event.ProxyState{Connection: event.ProxyConnected, Connections: 1, Since: time.Unix(1700000000, 0)},
		Pods: []event.PodState{servedPod(), {UID: "c", Namespace: "shop", Name: "job-x", Reason: "not-selected"}},
	}}
}
