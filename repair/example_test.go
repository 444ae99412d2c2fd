// SPDX-License-Identifier: Apache-2.0

package repair_test

import (
	"fmt"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/repair"
)

// A pod was started before the plugin was installed: its validator fails for the first time.
func Example() {
	pod := repair.Pod{
		Pod: interception.Pod{
			Namespace: "shop", Name: "cart-7d9f-x2x4z", UID: "0b9d",
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Containers:  []interception.Container{{Name: "istio-validation", Init: true}, {Name: "cart"}, {Name: "istio-proxy"}},
		},
		ResourceVersion: "4711", NodeName: "node-1", Phase: repair.PhasePending,
		Owners: []repair.OwnerReference{{Kind: "ReplicaSet", Name: "cart-7d9f", Controller: true}},
		Statuses: []repair.ContainerStatus{{
			Name: "istio-validation", Init: true,
			State: repair.ContainerState{Terminated: &repair.Termination{ExitCode: 126, Reason: "Error"}},
		}},
	}
	criteria := repair.Criteria{
		Mesh:       sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"},
		Node:       "node-1",
		Validators: []repair.Validator{repair.IstioValidator()},
	}
	policy := repair.Policy{Rules: []repair.Rule{
		{Namespaces: []string{"bank"}, Do: []repair.Mode{repair.ModeReport}},
		{OwnerKinds: []string{"Job"}, Do: []repair.Mode{repair.ModeRepair}},
		{Do: []repair.Mode{repair.ModeRepair, repair.ModeEvict}},
	}}

	finding := repair.Diagnose(pod, criteria)
	fmt.Println(finding)
	action := repair.Decide(pod, finding, policy)
	fmt.Println(action)
	fmt.Println("preconditions:", action.Target.UID, action.Target.ResourceVersion)
	// Output:
	// broken: validator; validator: init container istio-validation: exit code 126 (Error)
	// evict shop/cart-7d9f-x2x4z: broken (validator); rule 2; not repair: its namespace has not been observed: observe it, and diagnose again
	// preconditions: 0b9d 4711
}

// A pod has no validator, its rules were flushed, and its exclusions were widened: its plan is the
// recorded one.
func ExampleDiagnose() {
	output := func(excluded ...interception.Source) *interception.Plan {
		plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
			output := b.NAT("output")
			output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
			if len(excluded) > 0 {
				output.Do("output.excluded", interception.Match{L4: interception.TCP().To(interception.Ports(5432))},
					interception.Return{}, "excluded ports", excluded...)
			}
			output.Do("output.rest", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "all else")
		})
		if err != nil {
			panic(err)
		}
		return plan
	}
	pod := repair.Pod{
		Pod: interception.Pod{
			Namespace: "shop", Name: "cart-0", UID: "0b9d", Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Containers: []interception.Container{{Name: "cart"}, {Name: "istio-proxy"}},
		},
		NodeName: "node-1", Phase: repair.PhaseRunning,
	}
	then := output()
	now := output(interception.Source{
		Kind: interception.SourceAnnotation, Key: "traffic.sidecar.istio.io/excludeOutboundPorts", Value: "5432",
	})

	finding := repair.Diagnose(pod, repair.Criteria{
		Mesh: sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"},
		Observed: repair.Observation{
			State:  &interception.State{Owner: "my-mesh"}, // nothing left
			UID:    "0b9d",
			Record: &repair.Record{UID: "0b9d", Plan: then},
			Today:  now,
		},
	})
	fmt.Println(finding.Verdict, finding.Reason)
	for _, evidence := range finding.Evidence {
		fmt.Printf("%s: %s\n", evidence.From, evidence.Text)
	}
	fmt.Println("given back what was recorded:", finding.Plan == then)
	// Output:
	// broken drift
	// kernel: 3 differences, of which the first is nat hook output: missing nat.output.output (connections from the pod): want hook output: tcp -> jump output
	// annotations: traffic.sidecar.istio.io/excludeOutboundPorts is now "5432", but was of no account
	// given back what was recorded: true
}

// A budget is a value. The time is an argument.
func ExampleBudget_Take() {
	budget := repair.NewBudget(repair.Limits{
		Writes:      repair.Limit{Burst: 10, Every: 10 * time.Second},
		Disruptions: repair.Limit{Burst: 3, Every: time.Minute},
		PerOwner:    repair.Limit{Burst: 1, Every: 5 * time.Minute},
		PerPod:      repair.Limit{Burst: 1, Every: time.Minute},
	})
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, name := range []string{"cart-1", "cart-2", "till-1"} {
		action := repair.Action{
			Do: repair.ModeDelete, Owner: "ReplicaSet shop/" + name[:4],
			Target: repair.Target{Namespace: "shop", Name: name, UID: name},
		}
		left, err := budget.Take(action, now)
		if err != nil {
			fmt.Println(name, err)
			continue
		}
		budget = left
		fmt.Println(name, "now")
	}
	// Output:
	// cart-1 now
	// cart-2 over the limit "per owner": again in 5m0s
	// till-1 now
}
