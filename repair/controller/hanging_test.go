// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// hanging are namespaces in which looks at pods never end, or repairs, by the beginning of a pod's
// name.
type hanging struct{ *namespaces }

// Observe returns the observation of a pod, unless it changes its rules all the time.
func (h hanging) Observe(ctx context.Context, p repair.Pod) (repair.Observation, error) {
	if strings.HasPrefix(p.Name, "look") {
		<-ctx.Done()
		return repair.Observation{}, ctx.Err()
	}
	return h.namespaces.Observe(ctx, p)
}

// Repair restores the rules, unless the pod changes them all the time.
func (h hanging) Repair(ctx context.Context, p repair.Pod, plan *interception.Plan) error {
	if strings.HasPrefix(p.Name, "repair") {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.namespaces.Repair(ctx, p, plan)
}

// listener is an API server that keeps the events.
type listener struct {
	unwilling
	heard sync.Map // the messages, by pod
}

func (l *listener) CreateEvent(_ context.Context, e controller.Event) error {
	l.heard.Store(e.About.Name, e.Message)
	return nil
}

// TestPodsThatHang has more pods in whose namespaces nothing ends than are handled at a time: the
// pod after them is repaired all the same, and each of theirs is reported.
func TestPodsThatHang(t *testing.T) {
	t.Parallel()
	for what, says := range map[string]string{"look": "look at its network namespace: ", "repair": "repair its network namespace: "} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { podsHang(t, what, says+"not done within 1m0s") })
		})
	}
}

func podsHang(t *testing.T, what, says string) {
	t.Helper()
	names := []string{}
	for i := range 9 {
		names = append(names, fmt.Sprintf("%s-%d", what, i))
	}
	n := newNamespaces(t, append(names, "web-0")...)
	server := &listener{}
	o := options(repair.ModeRepair)
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	o.Cluster, o.Informer, o.Namespaces, o.ActAtStart = server, standing{store: store}, hanging{n}, true
	for _, name := range append(names, "web-0") {
		if err := store.Add(runningObject(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := controller.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), o.Resync-time.Minute)
	defer cancel()
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	if len(n.repaired) != 1 || n.repaired[0] != "web-0" {
		t.Errorf("repaired %v, want web-0 alone", n.repaired)
	}
	for _, name := range names {
		if message, _ := server.heard.Load(name); !strings.Contains(fmt.Sprint(message), says) {
			t.Errorf("the event of %s: %v, want %q", name, message, says)
		}
	}
}

// runningObject returns a running pod without a validator, as an informer keeps it.
func runningObject(t *testing.T, name string) *nodepods.Object {
	t.Helper()
	o := brokenObject(t)
	o.Name, o.Spec.InitContainers, o.Status = name, nil, nodepods.PodStatus{}
	if err := json.Unmarshal([]byte(`{"phase": "Running", "podIPs": [{"ip": "10.244.1.10"}]}`), &o.Status); err != nil {
		t.Fatal(err)
	}
	return o
}
