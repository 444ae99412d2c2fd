// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"testing"

	"github.com/meshcni/meshcni/ambient"
)

// enabled returns the pod as the API server tells of it once it is annotated.
func enabled(pod ambient.Pod) ambient.Pod {
	pod.Annotations = map[string]string{ambient.Istio().Status: string(ambient.StatusEnabled)}
	return pod
}

// TestPodComesBackBeforeItsAnnotationIsTold takes a pod out of the mesh and back, and the feed
// tells of its namespace's label before it tells that the annotation is gone. The pod gets its
// status once more.
func TestPodComesBackBeforeItsAnnotationIsTold(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	proxy, _ := n.proxy()
	pod := n.pod()
	a, _ := n.run()
	n.feed <- told(proxy, pod)
	n.awaitStatus(pod.UID, ambient.StatusEnabled)
	n.feed <- told(enabled(out(pod)))
	n.awaitStatus(pod.UID, ambient.NoStatus)
	n.feed <- told(enabled(pod))
	n.await("the pod captured again", func() bool {
		for _, one := range a.Status(pod.UID).Pods {
			if one.Seen.InSets && one.Step == "" && one.Wanted.Enrolled {
				return true
			}
		}
		return false
	})
	n.feed <- told(pod)
	n.awaitStatus(pod.UID, ambient.StatusEnabled)
	n.wantStatuses(pod, ambient.StatusEnabled, ambient.NoStatus, ambient.StatusEnabled)
}
