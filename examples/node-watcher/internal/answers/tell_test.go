// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// hear waits for the next news, which must be about web-0.
func (f *fixture) hear(t *testing.T) *interception.Pod {
	t.Helper()
	select {
	case n := <-f.told:
		if n.ref != (podsource.Ref{Namespace: "shop", Name: "web-0"}) {
			t.Fatalf("got %+v, want news about web-0", n)
		}
		return n.pod
	case <-time.After(patience):
		t.Fatalf("no news within %v", patience)
		return nil
	}
}

func TestPodsAreTold(t *testing.T) {
	t.Parallel()
	web := pods("a", "web-0")[0]
	f := newFixture(t, web)
	if pod := f.hear(t); pod == nil || pod.UID != "uid-web-0" || len(pod.Containers) != 2 {
		t.Errorf("at first: got %+v", pod)
	}
	f.cluster.Put(web) // a new version without a relevant change
	f.cluster.Put(pods("b", "elsewhere")...)
	web.Annotations = map[string]string{"note": "new"}
	f.cluster.Put(web)
	if pod := f.hear(t); pod == nil || pod.Annotations["note"] != "new" {
		t.Errorf("after a change: got %+v", pod)
	}
	web.Annotations = map[string]string{"note": strings.Repeat("x", nodepods.MaxPod)}
	f.cluster.Put(web)
	if pod := f.hear(t); pod != nil {
		t.Errorf("a pod that is too large to be kept was told")
	}
	f.cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: "another", Node: "a"})
	if pod := f.hear(t); pod == nil || pod.UID != "another" {
		t.Errorf("after a replacement: got %+v", pod)
	}
	f.cluster.Delete("shop", "web-0")
	if pod := f.hear(t); pod != nil {
		t.Errorf("after its deletion: got %+v", pod)
	}
}
