// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
)

// with returns the pod as the API server tells of it with a status.
func with(status ambient.Status, pod ambient.Pod) ambient.Pod {
	pod.Annotations = map[string]string{ambient.Istio().Status: string(status)}
	return pod
}

// TestPodComesBackBeforeItsAnnotationIsTold takes a pod out of the mesh and back, and the feed
// tells of its namespace's label before it tells that the annotation is gone. The pod gets its
// status once more.
func TestPodComesBackBeforeItsAnnotationIsTold(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.feed <- told(with(ambient.StatusEnabled, optedOut("a")))
	n.awaitStatus(a, "a", ambient.NoStatus)
	n.awaitRest(a)
	n.feed <- told(with(ambient.StatusEnabled, object("a")))
	n.awaitSelection(a, "a")
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	want := []ambient.Status{ambient.StatusEnabled, ambient.NoStatus, ambient.StatusEnabled}
	if got := n.statusesOf("a"); !slices.Equal(got, want) {
		t.Errorf("statuses %q, want %q", got, want)
	}
}

// TestAnnotationOfAnother has another program remove and change the annotation of an enrolled pod:
// each time the agent writes what it sees.
func TestAnnotationOfAnother(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("a")
	looks := n.countLooks("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	want := []ambient.Status{ambient.StatusEnabled}
	for _, status := range []ambient.Status{ambient.NoStatus, "no status", ambient.StatusPending} {
		for _, address := range []string{"10.244.2.98", "10.244.2.99"} { // the second look begins after the first news
			echo := with(ambient.StatusEnabled, object("a"))
			echo.Addresses = append(slices.Clone(echo.Addresses), netip.MustParseAddr(address))
			n.tellAndAwait(a, looks, told(echo))
		}
		n.feed <- told(with(status, object("a")))
		want = append(want, ambient.StatusEnabled)
		n.await(func() bool { return slices.Equal(n.statusesOf("a"), want) }, func() string {
			return fmt.Sprintf("after %q: statuses %q, want %q", status, n.statusesOf("a"), want)
		})
	}
}
