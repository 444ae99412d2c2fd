// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// standing is an informer of pods that never change.
type standing struct {
	cache.SharedIndexInformer
	store cache.Store
}

func (s standing) GetStore() cache.Store { return s.store }

func (s standing) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, object := range s.store.List() {
		h.OnAdd(object, true)
	}
	return synced{}, nil
}

func (standing) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }

type synced struct {
	cache.ResourceEventHandlerRegistration
}

func (synced) HasSynced() bool { return true }

// unwilling is an API server that refuses everything, and records when it was asked.
type unwilling struct {
	err error

	mu    sync.Mutex
	asked []time.Time
}

func (*unwilling) Pod(context.Context, string, string) (repair.Pod, error) {
	return repair.Pod{}, errors.New("nobody asks")
}

func (u *unwilling) Do(context.Context, repair.Action) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, time.Now())
	return u.err
}

func (*unwilling) CreateEvent(context.Context, controller.Event) error { return nil }

// TestAttemptsAreBounded: what the API server refuses is tried five times, with growing pauses, and
// again in the next round.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	for name, err := range map[string]error{
		"forbidden":                         apierrors.NewForbidden(pods, "web-0", errors.New("no role allows it")),
		"protected by a disruption budget":  apierrors.NewTooManyRequestsError("a disruption budget"),
		"broken":                            apierrors.NewGenericServerResponse(http.StatusBadGateway, "delete", pods, "web-0", "", 0, true),
		"no answer":                         context.DeadlineExceeded,
		"a conflict that nobody is told of": apierrors.NewConflict(pods, "web-0", errors.New("changed")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { boundedAttempts(t, err) })
		})
	}
}

func boundedAttempts(t *testing.T, err error) {
	t.Helper()
	u, start := &unwilling{err: err}, time.Now()
	o := options(repair.ModeDelete)
	o.Cluster, o.Informer = u, standing{store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	if err := o.Informer.GetStore().Add(brokenObject(t)); err != nil {
		t.Fatal(err)
	}
	c, err := controller.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), o.Resync+time.Minute)
	defer cancel()
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	var got []time.Duration
	for _, at := range u.asked {
		got = append(got, at.Sub(start))
	}
	round := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second}
	want := slices.Clone(round)
	for _, after := range round {
		want = append(want, o.Resync+after)
	}
	if !slices.Equal(got, want) {
		t.Errorf("it was tried after %v, want %v", got, want)
	}
}

// brokenObject returns a broken pod as an informer keeps it.
func brokenObject(t *testing.T) *nodepods.Object {
	t.Helper()
	var o nodepods.Object
	if err := json.Unmarshal([]byte(`{
		"metadata": {
			"namespace": "shop", "name": "web-0", "uid": "1", "resourceVersion": "1", "annotations": {"sidecar.istio.io/status": "{}"},
			"ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "2", "controller": true}]
		},
		"spec": {
			"nodeName": "a", "initContainers": [{"name": "istio-validation"}], "containers": [{"name": "istio-proxy", "args": ["proxy", "sidecar"]}]
		},
		"status": {
			"phase": "Pending", "podIPs": [{"ip": "10.244.0.7"}], "initContainerStatuses": [{"name": "istio-validation", "state": {"terminated": {"exitCode": 126}}}]
		}
	}`), &o); err != nil {
		t.Fatal(err)
	}
	return &o
}
