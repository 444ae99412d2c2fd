// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// TestAwaitAnnotated waits for statuses: while there is no source, until one has confirmed them,
// and for a pod that is gone.
func TestAwaitAnnotated(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	var annotated sync.Map
	c.annotate = func(_ context.Context, pod interception.Pod, status ambient.Status) error {
		annotated.Store(pod.UID, status)
		return nil
	}
	a := begin(t, path)
	if err := a.AwaitAnnotated(t.Context()); err != nil {
		t.Errorf("without any status: %v", err)
	}
	named := func(uid string) interception.Pod { return interception.Pod{Namespace: "shop", Name: "web", UID: uid} }
	a.Annotate(named("1"), ambient.StatusEnabled)
	a.Annotate(named("2"), ambient.NoStatus)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.AwaitAnnotated(over); !errors.Is(err, context.Canceled) {
		t.Errorf("without a source: %v", err)
	}
	if err := a.AwaitAnnotated(over, "3"); err != nil {
		t.Errorf("of a pod that has no status: %v", err)
	}
	c.serve(t, path, ServerOptions{})
	c.changes <- told(true, "1") // the other pod is gone
	if err := errors.Join(a.AwaitAnnotated(t.Context(), "1"), a.AwaitAnnotated(t.Context())); err != nil {
		t.Errorf("with a source: %v", err)
	}
	if status, _ := annotated.Load("1"); status != ambient.StatusEnabled {
		t.Errorf("confirmed, and the pod has the status %v", status)
	}
}
