// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// startWithoutPlugin starts pods on the node Bridge while another program keeps writing the
// network's configuration without the plugin. It returns a pod with an event that has this reason
// and these words.
func startWithoutPlugin(ctx context.Context, s *scenario.Scenario, reason, words string) *corev1.Pod {
	pods := map[string]*corev1.Pod{}
	var told string
	ctx, end := context.WithCancel(ctx)
	written := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = s.Bridge.InstallNetwork(cluster.BridgeNetwork)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
		written <- err
	}()
	// A pod has the plugin if the runtime reads the configuration just after a restore.
	for number := range 3 {
		pod := s.Pod(scenario.Workload{Name: fmt.Sprintf("pod-%d", number), Injected: true, Node: s.Bridge.Name})
		pods[pod.Name] = pod
	}
	end()
	s.Do("write the network's configuration", func(context.Context) error { return <-written })
	s.Await(reason, func(ctx context.Context) (bool, error) {
		events, err := s.Cluster.Client.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=cni-repair"})
		if err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if e.Reason == reason && strings.Contains(e.Message, words) {
				told = e.InvolvedObject.Name
				return true, nil
			}
		}
		return false, nil
	})
	return pods[told]
}

// TestStartedWithoutThePlugin starts a pod while the plugin is missing from the network's
// configuration. The product, installed with default values, captures it in place.
func TestStartedWithoutThePlugin(t *testing.T) {
	suite.Long(t)
	s := suite.BeginAsItIs(t)
	s.Have(nil)
	pod := startWithoutPlugin(t.Context(), s, "RepairBrokenPod", "no-rules")
	s.Await("rules of "+pod.Name, func(context.Context) (bool, error) { return s.Rules(pod) != "", nil })
}

// TestStartedWithoutThePluginReported does the same without capabilities: the pod gets an event,
// the metric of an alert counts it, and it stays as it is.
func TestStartedWithoutThePluginReported(t *testing.T) {
	suite.Long(t)
	s := suite.BeginAsItIs(t)
	s.Have(scenario.Values{"repairInPlace": false})
	pod := startWithoutPlugin(t.Context(), s, "SuspectPod", "not-recorded")
	s.Await("the metric", func(ctx context.Context) (bool, error) {
		daemon := s.Daemon(s.Bridge)
		text, err := s.Cluster.Client.CoreV1().Pods(daemon.Namespace).ProxyGet("http", daemon.Name, "15014", "/metrics", nil).DoRaw(ctx)
		const sample = "\nmeshcni_repair_pods{verdict=\"suspect\"} "
		return err == nil && strings.Contains(string(text), sample) && !strings.Contains(string(text), sample+"0\n"), nil
	})
	if rules := s.Rules(pod); rules != "" {
		t.Errorf("it has rules:\n%s", rules)
	}
}
