// SPDX-License-Identifier: Apache-2.0

package controller

import "testing"

// TestNewsIsBounded has a pod that comes and goes, in a namespace of its own, without a reader and
// with one. Nothing of it is left.
func TestNewsIsBounded(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]bool{"not read": false, "read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNews(nil)
			const key = "job-1/job"
			n.addPod(key, true)
			if read {
				delete(n.pods, key)
				n.tell(key, "1")
			}
			n.addNamespace("job-1")
			n.addPod(key, false)
			if read {
				delete(n.pods, key)
				n.forget(key)
			}
			if left := len(n.pods) + len(n.namespaces) + len(n.told) + len(n.homes); left > 0 {
				t.Errorf("left: %+v", n)
			}
		})
	}
}
