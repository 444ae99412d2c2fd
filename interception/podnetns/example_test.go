// SPDX-License-Identifier: Apache-2.0

package podnetns_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// A daemon observes what a pod's namespace holds. Its container has the node's directories mounted
// below /host.
func Example() {
	observe := func(ctx context.Context, with interception.Dataplane, pod podnetns.Pod) (interception.State, error) {
		finder, err := podnetns.NewFinder(podnetns.Roots{
			Proc: "/host/proc", Netns: []string{"/host/run/netns"}, Results: "/host/var/lib/cni/results", Journal: "/var/run/istio-cni/journal",
		})
		if err != nil {
			return interception.State{}, err
		}
		found, err := finder.FindToRead(ctx, pod)
		if err != nil {
			return interception.State{}, err
		}
		defer found.Netns.Close()
		return with.Observe(ctx, found.Netns, "istio-cni")
	}
	_ = observe
}

// A refusal has its obstacle for a metric, and the details for a log.
func ExampleRefusalError() {
	var err error = &podnetns.RefusalError{
		Pod:      podnetns.Pod{Namespace: "shop", Name: "cart-0", UID: "1c6b2f1e-9d3c-4f7a-8a51-0f3b9c2d4e5f"},
		Obstacle: podnetns.ObstacleAmbiguous, Detail: "2 network namespaces may be its own",
		Leads: []podnetns.Lead{
			{Source: podnetns.SourceJournal, At: "/host/run/netns/cni-1", Netns: interception.NetnsID{Inode: 4026532281}},
			{Source: podnetns.SourceProcesses, At: "process 4711", Netns: interception.NetnsID{Inode: 4026532370}},
		},
	}
	var refusal *podnetns.RefusalError
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Obstacle)
	}
	fmt.Println(err)
	// Output:
	// ambiguous
	// find the network namespace of pod shop/cart-0 (uid 1c6b2f1e-9d3c-4f7a-8a51-0f3b9c2d4e5f): 2 network namespaces may be its own; journal: /host/run/netns/cni-1 (net:[4026532281]); processes: process 4711 (net:[4026532370]); find out which program made these namespaces (lsns -t net), and have the pod created again
}
