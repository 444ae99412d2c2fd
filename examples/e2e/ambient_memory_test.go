// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

var ambientPods = flag.Int("ambient-pods", 10, "how many pods of the mesh TestAmbientMemory starts on a node")

// TestAmbientMemory starts pods of the mesh on one node, and takes all out of the mesh and back.
// The memory limit of the daemon's container is enough, and the resident memory of its processes is
// printed.
func TestAmbientMemory(t *testing.T) {
	suite.Long(t)
	a := beginAmbient(t)
	a.label(true)
	for number := range *ambientPods {
		a.Start(scenario.Workload{Name: fmt.Sprintf("pod-%d", number), Node: a.Bridge.Name, Arguments: []string{"wait"}})
	}
	a.awaitAnnotated(*ambientPods)
	a.label(false)
	a.awaitAnnotated(0)
	a.label(true)
	a.awaitAnnotated(*ambientPods)
	node := &soaked{Node: a.Bridge}
	for _, program := range []string{"install-cni", "node-watcher", "node-ambient"} {
		text, err := os.ReadFile(node.Path("/proc/" + node.pid(program) + "/status"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "VmRSS:") || strings.HasPrefix(line, "RssAnon:") {
				t.Logf("%s with %d pods: %s", program, *ambientPods, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	memory, err := node.Memory(node.pid("install-cni"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the container with %d pods: %s", *ambientPods, memory)
	if err := memory.Enough(); err != nil {
		t.Error(err)
	}
}

// awaitAnnotated waits until a number of the namespace's pods are enrolled.
func (a *ambientScenario) awaitAnnotated(want int) {
	a.t.Helper()
	var statuses []string
	defer func() {
		if a.t.Failed() {
			a.t.Logf("the pods' statuses: %q", statuses)
		}
	}()
	a.AwaitFor(5*time.Minute, fmt.Sprintf("%d enrolled pods", want), func(ctx context.Context) (bool, error) {
		pods, err := a.Cluster.Client.CoreV1().Pods(a.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		statuses = nil
		enrolled := 0
		for _, pod := range pods.Items {
			statuses = append(statuses, pod.Annotations[redirection])
			if pod.Annotations[redirection] == "enabled" {
				enrolled++
			}
		}
		return enrolled == want, nil
	})
}
