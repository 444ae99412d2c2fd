// SPDX-License-Identifier: Apache-2.0

package nodepods_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// TestInformer knows the pods of one node, and of a pod that is too large what was asked for.
func TestInformer(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(
		fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: "1", Node: "a"},
		fakecluster.Pod{Namespace: "shop", Name: "web-1", UID: "2", Node: "b"},
		fakecluster.Pod{
			Namespace: "shop", Name: "large", UID: "3", Node: "a",
			Labels: map[string]string{"tier": "web"}, ServiceAccount: "large",
			Annotations: map[string]string{"note": strings.Repeat("x", nodepods.MaxPod), "mesh": "on"},
		},
		fakecluster.Pod{
			Namespace: "shop", Name: "huge", UID: "4", Node: "a",
			Annotations: map[string]string{"mesh": strings.Repeat("x", nodepods.MaxPod)},
		},
	)
	server := httptest.NewServer(cluster.Handler())
	t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	client, err := nodepods.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodepods.NewInformer(client, nodepods.Selection{}); !errors.Is(err, nodepods.ErrNoNode) {
		t.Errorf("without a node: %v", err)
	}
	informer, err := nodepods.NewInformer(client, nodepods.Selection{Node: "a", Keep: []string{"mesh", "tier"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); informer.RunWithContext(ctx) }()
	t.Cleanup(func() { end(); <-done })
	<-informer.HasSyncedChecker().Done()
	for _, object := range informer.GetStore().List() {
		if o, is := object.(*nodepods.Object); !is || !isAsExpected(o) {
			t.Errorf("knows %+v", object)
		}
	}
	if n := len(informer.GetStore().ListKeys()); n != 3 {
		t.Errorf("knows %d pods", n)
	}
}

// isAsExpected looks at an object of TestInformer.
func isAsExpected(o *nodepods.Object) bool {
	switch o.Name {
	case "web-0":
		return !o.TooLarge && o.Pod().UID == "1"
	case "large":
		return o.TooLarge && maps.Equal(o.Annotations, map[string]string{"mesh": "on"}) &&
			maps.Equal(o.Labels, map[string]string{"tier": "web"}) && o.Spec.ServiceAccount == "large" &&
			o.Status.Phase == "Running" && len(o.Addresses()) == 1 && len(o.Pod().Containers) == 0
	case "huge":
		return o.TooLarge && strings.HasPrefix(o.Annotations["mesh"], "(65536 bytes, ")
	}
	return false
}
