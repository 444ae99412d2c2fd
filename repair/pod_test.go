// SPDX-License-Identifier: Apache-2.0

package repair_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/repair"
)

// added is the time of the ADD of the tests' pods.
var added = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// criteria are those of a node agent for Istio's pods.
func criteria() repair.Criteria {
	mesh := sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"}
	mesh.Policy = sidecar.Policy{ExcludeNamespaces: []string{"kube-system"}, AgentNamespace: "istio-system", AgentName: "istio-cni-node"}
	return repair.Criteria{
		Mesh:       mesh,
		Node:       "node-1",
		Validators: []repair.Validator{repair.IstioValidator(), repair.LinkerdValidator(), repair.KumaValidator()},
		Planner:    "v1.1.0",
	}
}

// change is what a case changes in the pod, and in its observation.
type change func(*repair.Pod, *repair.Criteria)

// meshPod returns a running pod of a Deployment that passed its validator, after the changes.
func meshPod(changes ...change) (repair.Pod, repair.Criteria) {
	pod := repair.Pod{
		Pod: interception.Pod{
			Namespace: "shop", Name: "cart-7d9f-x2x4z", UID: "0b9d",
			Labels:      map[string]string{},
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Containers: []interception.Container{
				{Name: "istio-validation", Init: true},
				{Name: "migrate", Init: true},
				{Name: "cart"},
				{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, Env: map[string]string{}},
			},
		},
		ResourceVersion: "4711", NodeName: "node-1", RestartPolicy: repair.RestartAlways, Phase: repair.PhaseRunning,
		Owners:   []repair.OwnerReference{{Kind: "ReplicaSet", Name: "cart-7d9f", UID: "c0de", Controller: true}},
		IPs:      []netip.Addr{netip.MustParseAddr("10.244.0.7")},
		Statuses: []repair.ContainerStatus{{Name: "istio-validation", Init: true, State: ended(0)}},
	}
	c := criteria()
	for _, change := range changes {
		change(&pod, &c)
	}
	return pod, c
}

func ended(code int32) repair.ContainerState {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return repair.ContainerState{Terminated: &repair.Termination{ExitCode: code, Reason: reason, FinishedAt: added.Add(6 * time.Second)}}
}

func backOff() repair.ContainerState { return repair.ContainerState{Waiting: "CrashLoopBackOff"} }

func running() repair.ContainerState { return repair.ContainerState{Running: true} }

// statuses sets those of the init containers of a starting pod.
func statuses(s ...repair.ContainerStatus) change {
	return func(p *repair.Pod, _ *repair.Criteria) {
		p.Phase, p.Statuses = repair.PhasePending, s
		for i := range s {
			p.Statuses[i].Init = true
		}
	}
}

// containers sets the statuses of a running pod's containers.
func containers(s ...repair.ContainerStatus) change {
	return edit(func(p *repair.Pod) { p.Statuses = s })
}

func validator(now, last repair.ContainerState) change { return named("istio-validation", now, last) }

func named(name string, now, last repair.ContainerState) change {
	return statuses(repair.ContainerStatus{Name: name, State: now, Last: last})
}

// failed has a validator that has reported "not captured" and waits to be restarted.
func failed() change { return validator(backOff(), ended(126)) }

// without removes the validator.
func without() change {
	return func(p *repair.Pod, _ *repair.Criteria) {
		p.Containers, p.Statuses = p.Containers[1:], nil
	}
}

func phase(phase repair.Phase) change {
	return func(p *repair.Pod, _ *repair.Criteria) { p.Phase = phase }
}

func owned(kind string) change {
	return func(p *repair.Pod, _ *repair.Criteria) { p.Owners[0].Kind = kind }
}

func unowned() change {
	return func(p *repair.Pod, _ *repair.Criteria) { p.Owners = nil }
}

// job makes the pod a Job's, with the restart policy.
func job(policy repair.RestartPolicy) change {
	return func(p *repair.Pod, _ *repair.Criteria) {
		p.Owners[0] = repair.OwnerReference{Kind: "Job", Name: "nightly", Controller: true}
		p.RestartPolicy = policy
	}
}

func label(key, value string) change {
	return func(p *repair.Pod, _ *repair.Criteria) { p.Labels[key] = value }
}

func annotation(key, value string) change {
	return func(p *repair.Pod, _ *repair.Criteria) { p.Annotations[key] = value }
}

func edit(f func(p *repair.Pod)) change {
	return func(p *repair.Pod, _ *repair.Criteria) { f(p) }
}

func condition(kind, status, reason string) change {
	return func(p *repair.Pod, _ *repair.Criteria) {
		p.Conditions = append(p.Conditions, repair.Condition{Type: kind, Status: status, Reason: reason})
	}
}

// The plans of the tests: the plan for a pod's annotations, and another version's for the same
// ones.
func plan(excluded, id string) *interception.Plan {
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		if excluded != "" {
			output.Do("output.excluded", interception.Match{L4: interception.TCP().To(interception.Ports(9090))}, interception.Return{},
				"excluded ports", interception.Source{
					Kind: interception.SourceAnnotation, Key: "traffic.sidecar.istio.io/excludeOutboundPorts", Value: excluded,
				})
		}
		output.Do(interception.RuleID(id), interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001},
			"all else goes to the proxy", interception.Source{Kind: interception.SourceDefault, Key: "includeOutboundIPRanges", Value: id})
	})
	if err != nil {
		panic(err)
	}
	return plan
}

func planned() *interception.Plan { return plan("", "output.rest") }

// widened excludes what planned captures.
func widened() *interception.Plan { return plan("9090", "output.rest") }

// replanned is another version's plan for the same annotations.
func replanned() *interception.Plan { return plan("", "output.all") }

func empty() *interception.Plan { return &interception.Plan{Owner: "my-mesh"} }

// recorded adds a record of the plan.
func recorded(p *interception.Plan) change {
	return func(pod *repair.Pod, c *repair.Criteria) {
		c.Observed.Record = &repair.Record{UID: pod.UID, Time: added, Planner: "v1.1.0", Plan: p}
	}
}

func record(f func(r *repair.Record)) change {
	return func(_ *repair.Pod, c *repair.Criteria) { f(c.Observed.Record) }
}

func today(p *interception.Plan) change {
	return func(_ *repair.Pod, c *repair.Criteria) { c.Observed.Today = p }
}

// holds makes the namespace hold what an Apply of the plan leaves.
func holds(p *interception.Plan) change {
	return state(interception.State{Owner: p.Owner, Objects: p.Objects})
}

func state(s interception.State) change {
	return func(pod *repair.Pod, c *repair.Criteria) { c.Observed.State, c.Observed.UID = &s, pod.UID }
}

// disturbed holds the plan, and another program's rule that precedes it.
func disturbed(p *interception.Plan) change {
	return state(interception.State{Owner: p.Owner, Objects: p.Objects, Foreign: []interception.ForeignChain{{
		Table: "ip nat", Name: "OUTPUT", Hook: "output", Type: "nat", Priority: -150,
		Rules: []interception.Rule{{Match: interception.Match{L4: interception.TCP()}, Action: interception.RedirectTo{Port: 8080}}},
	}}})
}

func all(changes ...change) change {
	return func(p *repair.Pod, c *repair.Criteria) {
		for _, change := range changes {
			change(p, c)
		}
	}
}

func TestController(t *testing.T) {
	t.Parallel()
	pod := repair.Pod{Owners: []repair.OwnerReference{{Kind: "Backup", Name: "b"}, {Kind: "StatefulSet", Name: "s", Controller: true}}}
	if owner, found := pod.Controller(); !found || owner.Name != "s" {
		t.Errorf("got %v, %v", owner, found)
	}
	pod.Owners = pod.Owners[:1]
	if owner, found := pod.Controller(); found {
		t.Errorf("an owner that controls nothing: got %v", owner)
	}
}
