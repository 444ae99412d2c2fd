// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"context"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/inplace"
)

// A daemon repairs a broken pod. Its container has the node's directories mounted below /host.
func Example() {
	heal := func(ctx context.Context, pod repair.Pod, mesh sidecar.Mesh, criteria repair.Criteria) error {
		finder, err := podnetns.NewFinder(podnetns.Roots{
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
			Finder: finder, Dataplanes: dataplanes, Mesh: mesh, Owner: mesh.Owner,
			Plan: func(pod interception.Pod, facts interception.Facts) (*interception.Plan, error) {
				planned, err := mesh.Plan(pod, facts)
				return planned.Plan, err
			},
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
