// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	namespaces "github.com/meshcni/meshcni/internal/testing/sandbox"
)

// TestE21PodWithUsersOfItsOwn enrols a pod with hostUsers: false, whose network namespace belongs
// to another user namespace than the agent's, with each dataplane.
func TestE21PodWithUsersOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if backend == "iptables" {
				dataplane, err := iptables.New(iptables.Options{})
				if err != nil {
					t.Fatal(err)
				}
				n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, dataplane, dataplane
			}
			pod, err := namespaces.NewNamespaceOfUsers(filepath.Join(t.TempDir(), "netns"))
			if err != nil {
				t.Fatal(err)
			}
			defer pod.Close()
			n.paths["a"] = pod.Path()
			a, _ := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitStatus(a, "a", ambient.StatusEnabled)
			namespace, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer namespace.Close()
			state, err := n.dataplane.Observe(t.Context(), namespace, owner)
			if err != nil || differs(n.recorded("a").Plan, state) {
				t.Errorf("the pod has %+v, %v, want its plan", state, err)
			}
		})
	}
}
