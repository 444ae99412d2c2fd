// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/repair"
)

// TestRefusedUnharmed: a refused repair of a living pod changes nothing, neither its connections
// nor where new ones go.
func TestRefusedUnharmed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known   bool // by a process of the pod
		prepare func(l *living, p *repair.Pod)
		want    podnetns.Obstacle
	}{
		"it is the host's": {
			true, func(l *living, _ *repair.Pod) {
				l.node.Link(l.Path(), filepath.Join(l.node.Roots.Proc, "1", "ns", "net"))
			},
			podnetns.ObstacleHostNetwork,
		},
		"made anew under the name": {true, func(_ *living, p *repair.Pod) { p.UID = otherUID }, podnetns.ObstacleUnproven},
		"a record and a result of the pod before": {
			false, func(l *living, _ *repair.Pod) {
				l.node.Record(otherUID, nil, "", nil)
				l.node.Result(container, l.Path(), otherUID)
			}, podnetns.ObstacleAnotherUID,
		},
		"a process of another pod inside": {
			true, func(l *living, _ *repair.Pod) { l.node.Process(l.Path(), fakenode.Cgroup(otherUID, "cri-containerd")) }, podnetns.ObstacleShared,
		},
		"a process of nobody's with the pod's address": {
			false, func(l *living, _ *repair.Pod) { l.node.Process(l.Path(), "0::/user.slice\n") }, podnetns.ObstacleUnproven,
		},
		"another one with the address, which has as good a claim": {
			true, func(l *living, _ *repair.Pod) {
				l.node.Process(l.node.Namespace("double", address).Path(), fakenode.Cgroup(uid, "crio"))
			}, podnetns.ObstacleAmbiguous,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, p := newStray(t, choice.NFTables), pod()
			if test.known {
				l.node.Process(l.Path(), fakenode.Cgroup(uid, "cri-containerd"))
			}
			plan := planned(t, p)
			l.connect(t, false, probes())
			before := l.state(t)
			test.prepare(l, &p)
			var refusal *podnetns.RefusalError
			if err := l.Repair(t.Context(), p, plan); !errors.As(err, &refusal) || refusal.Obstacle != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if after := l.state(t); !reflect.DeepEqual(before, after) {
				t.Errorf("it held %+v, and holds %+v", before, after)
			}
			l.speak(t)
			l.connect(t, false, probes())
		})
	}
}

// state observes the pod's namespace.
func (l *living) state(t *testing.T) interception.State {
	t.Helper()
	ns, err := interception.OpenNetns(l.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	state, err := l.candidates[0].Dataplane.Observe(t.Context(), ns, "istio-cni")
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestRepairTwice: two agents repair the same living pod at the same moment, as two copies of a
// daemon may.
func TestRepairTwice(t *testing.T) {
	t.Parallel()
	l, p := newLiving(t, choice.NFTables), pod()
	l.node.Result(container, "/var/run/netns/pod", uid)
	l.connect(t, false, probes())
	f := l.expect(t, p, repair.Broken, repair.ReasonNoRules)
	var group sync.WaitGroup
	for range 2 {
		r := newRepairer(t, l.bench)
		group.Go(func() {
			if err := r.Repair(t.Context(), p, f.Plan); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	l.awaitAddresses(t, f.Plan)
	l.connect(t, true, probes())
	l.speak(t)
	l.expect(t, p, repair.Healthy, repair.ReasonAsRecorded)
}
