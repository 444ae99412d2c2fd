// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/inplace"
)

// A daemon repairs a broken pod. Its container has the node's directories mounted below /host.
func Example() {
	heal := func(ctx context.Context, pod repair.Pod, mesh inplace.Mesh, criteria repair.Criteria) error {
		finder, err := inplace.NewFinder(inplace.Roots{
			Proc: "/host/proc", Netns: []string{"/host/run/netns"}, Results: "/host/var/lib/cni/results", Journal: "/var/run/istio-cni/journal",
		})
		if err != nil {
			return err
		}
		dataplanes, err := standard.Candidates(nftables.Options{Foreign: true}, iptables.Options{Foreign: true})
		if err != nil {
			return err
		}
		repairer, err := inplace.NewRepairer(inplace.Options{
			Finder: finder, Dataplanes: dataplanes, Mesh: mesh,
		})
		if err != nil {
			return err
		}
		if criteria.Observed, err = repairer.Observe(ctx, pod); err != nil {
			return err
		}
		finding := repair.Diagnose(pod, criteria)
		if finding.Verdict != repair.Broken || finding.Plan == nil {
			return nil
		}
		return repairer.Repair(ctx, pod, finding.Plan)
	}
	_ = heal
}

// A refusal has its reason for a metric, and the details for a log.
func ExampleRefusalError() {
	var err error = &inplace.RefusalError{
		Pod:    repair.Target{Namespace: "shop", Name: "cart-0", UID: "1c6b2f1e-9d3c-4f7a-8a51-0f3b9c2d4e5f"},
		Reason: inplace.ReasonAmbiguous, Detail: "2 network namespaces may be its own",
		Leads: []inplace.Lead{
			{Source: inplace.SourceJournal, At: "/host/run/netns/cni-1", Netns: interception.NetnsID{Inode: 4026532281}},
			{Source: inplace.SourceProcesses, At: "process 4711", Netns: interception.NetnsID{Inode: 4026532370}},
		},
	}
	var refusal *inplace.RefusalError
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Reason)
	}
	fmt.Println(err)
	// Output:
	// ambiguous
	// pod shop/cart-0 (uid 1c6b2f1e-9d3c-4f7a-8a51-0f3b9c2d4e5f) is not repaired in place: 2 network namespaces may be its own; journal: /host/run/netns/cni-1 (net:[4026532281]); processes: process 4711 (net:[4026532370]); look who has made these namespaces (lsns -t net), and have the pod created again
}
