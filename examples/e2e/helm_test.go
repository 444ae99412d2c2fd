// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestSettingsChange changes settings by the ConfigMap alone while the daemon runs.
func TestSettingsChange(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	before := []*corev1.Pod{s.Daemon(s.Bridge), s.Daemon(s.PointToPoint)}
	s.Do("exclude a namespace", func(ctx context.Context) error {
		return s.Install(ctx, scenario.Values{"settings": scenario.Values{"excludeNamespaces": []any{"kube-system", s.Namespace}}})
	})
	for _, pod := range before {
		// The kubelet checks a mounted ConfigMap when it syncs the pod, once a minute; a change of
		// the pod makes it do so now.
		s.Do("touch "+pod.Name, func(ctx context.Context) error {
			_, err := s.Cluster.Client.CoreV1().Pods(pod.Namespace).Patch(
				ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"`+s.Namespace+`"}}}`), metav1.PatchOptions{},
			)
			return err
		})
		s.Await("the settings of "+pod.Name, func(context.Context) (bool, error) {
			said, err := s.Exec(pod, "install-cni", "install-cni", "config", "--running")
			return strings.Contains(said, s.Namespace), err
		})
	}
	pod := s.Pod(scenario.Workload{Name: "excluded", Injected: true, Node: s.Bridge.Name})
	if rules := s.Rules(pod); rules != "" {
		t.Errorf("a pod of a namespace that is excluded now has rules:\n%s", rules)
	}
	for _, pod := range before {
		now := s.Daemon(s.NodeOf(pod))
		if now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != pod.Status.ContainerStatuses[0].RestartCount {
			t.Errorf("%s was started again: now there is %s", pod.Name, now.Name)
		}
	}
}

// TestHelmUninstall runs helm uninstall, which deletes in the background by default. Nothing stays
// in the cluster, and on the nodes only what existing pods need.
func TestHelmUninstall(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	captured := s.Pod(scenario.Workload{Name: "captured", Injected: true, Node: s.Bridge.Name})
	s.Do("uninstall", func(context.Context) error { return s.UninstallRelease(scenario.ReleaseName) })
	expectNodesAsBefore(t, s)
	for _, node := range s.Cluster.Nodes() {
		if _, err := os.Stat(node.Path("/opt/cni/bin/istio-cni.uninstalled")); err != nil {
			t.Errorf("%s: %v", node.Name, err)
		}
	}
	left := 0
	s.Do("look for what is left", func(ctx context.Context) error {
		accounts, err := s.Cluster.Client.CoreV1().ServiceAccounts(scenario.SystemNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		roles, err := s.Cluster.Client.RbacV1().Roles(scenario.SystemNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		jobs, err := s.Cluster.Client.BatchV1().Jobs(scenario.SystemNamespace).List(ctx, metav1.ListOptions{})
		// One account is the namespace's default.
		left = len(accounts.Items) - 1 + len(roles.Items) + len(jobs.Items)
		return err
	})
	if left != 0 {
		t.Errorf("%d service accounts, roles and jobs are left", left)
	}
	plain := s.Pod(scenario.Workload{Name: "plain", Injected: true, Node: s.Bridge.Name})
	if rules := s.Rules(plain); rules != "" {
		t.Errorf("a pod that started after the uninstall has rules:\n%s", rules)
	}
	s.Delete(plain)
	s.Delete(captured)
	s.Do("install again", func(ctx context.Context) error { return s.Install(ctx, scenario.Values{}) })
	s.Daemons()
}

// TestRevisions runs two revisions on a node. The newer one keeps the node; when it goes, the older
// one takes over and answers the plugin.
func TestRevisions(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	s.Do("install a second revision", func(ctx context.Context) error {
		return s.InstallRelease(ctx, "canary", scenario.Values{"revision": "canary"})
	})
	canary := true
	s.Cleanup("uninstall the second revision", func(context.Context) error {
		if !canary {
			return nil
		}
		return s.UninstallRelease("canary")
	})
	claim := func() string {
		text, err := os.ReadFile(s.Bridge.Path("/opt/cni/bin/istio-cni.claim"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	s.Await("the second revision keeps the node", func(context.Context) (bool, error) {
		return strings.Contains(claim(), "istio-cni-canary-node"), nil
	})
	server := s.Pod(scenario.Workload{Name: "server", Injected: true, Node: s.Bridge.Name})
	s.Do("uninstall the second revision", func(context.Context) error { canary = false; return s.UninstallRelease("canary") })
	s.Await("the first revision keeps the node", func(context.Context) (bool, error) {
		return !strings.Contains(claim(), "istio-cni-canary-node"), nil
	})
	client := s.Pod(scenario.Workload{Name: "client", Injected: true, Node: s.Bridge.Name})
	s.Expect(client, server, 8080, "outbound client", "inbound server")
	expectAnswerOfDaemon(s, s.Bridge, "after-canary")
}

// TestInstallModes adds the plugin to the network in each mode, and switches between modes.
func TestInstallModes(t *testing.T) {
	suite.Long(t)
	s := suite.BeginAsItIs(t)
	for _, mode := range []string{"owned", "dropin", "splice"} {
		s.Do("install by "+mode, func(ctx context.Context) error {
			return s.Install(ctx, scenario.Values{"settings": scenario.Values{"installMode": mode}})
		})
		s.Await("the plugin by "+mode, func(context.Context) (bool, error) {
			files := s.NetworkFiles(s.Bridge)
			_, err := os.Stat(s.Bridge.Path("/etc/cni/net.d/e2e/99-istio-cni.conf"))
			return strings.Contains(files[cluster.FileName], "istio-cni") == (mode == "splice") &&
				(files["02-istio-cni.conflist"] != "") == (mode == "owned") && (err == nil) == (mode == "dropin"), nil
		})
		pod := s.Pod(scenario.Workload{Name: mode, Injected: true, Node: s.Bridge.Name})
		if s.Rules(pod) == "" {
			t.Errorf("%s: the pod isn't captured", mode)
		}
	}
}
