// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestNoMoreProcesses makes the container runtime start the plugin at the limit of processes
// (pids.max). The pod's event has the plugin's error in one line, with a remedy, and the pod starts
// once the limit is raised.
func TestNoMoreProcesses(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	limit := limitPlugin(s)
	limit("1")
	waiting := scenario.Workload{Name: "waiting", Injected: true, Node: s.Bridge.Name}
	s.Start(waiting)
	said := ""
	s.Await("an event that says why", func(ctx context.Context) (bool, error) {
		events, err := s.Cluster.Client.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=FailedCreatePodSandBox,involvedObject.name=" + waiting.Name,
		})
		if err != nil || len(events.Items) == 0 {
			return false, err
		}
		said = events.Items[0].Message
		return true, nil
	})
	t.Log(said)
	for _, want := range []string{`plugin type="istio-cni"`, `failed (add): start a thread: the kernel gives the plugin no more threads; `, "raise the limit: TasksMax"} {
		if !strings.Contains(said, want) {
			t.Errorf("the event lacks %q", want)
		}
	}
	if strings.Contains(strings.TrimSpace(said), "\n") || strings.Contains(said, "goroutine") {
		t.Error("the event has more than a line, or stacks")
	}
	limit("max")
	s.Expect(client, s.AwaitPod(waiting), 8080, "inbound waiting")
}

// limitPlugin makes the runtime of the node Bridge start the plugin in its own control group, by a
// script mounted over it. The daemon has its own mount of the directory and does not see the
// script. The returned function sets the number of processes allowed.
func limitPlugin(s *scenario.Scenario) func(processes string) {
	const plugin, script = "/run/limited/istio-cni", "/run/limited/limit"
	group := processGroup(s)
	s.Do("limit the plugin", func(ctx context.Context) error {
		program, err := os.ReadFile(s.Bridge.Path(pluginFile))
		if err != nil {
			return err
		}
		text := "#!/bin/sh\necho $$ > " + group + "/cgroup.procs && exec " + plugin + "\n"
		err = errors.Join(
			os.Mkdir(s.Bridge.Path(filepath.Dir(plugin)), 0o755),
			os.WriteFile(s.Bridge.Path(plugin), program, 0o755),
			os.WriteFile(s.Bridge.Path(script), []byte(text), 0o755),
		)
		if err == nil {
			_, err = s.Bridge.Run(ctx, "mount", "--bind", script, pluginFile)
		}
		return err
	})
	s.Cleanup("start the plugin as before", func(ctx context.Context) error {
		_, err := s.Bridge.Run(ctx, "umount", pluginFile)
		return errors.Join(err, os.RemoveAll(s.Bridge.Path(filepath.Dir(plugin))))
	})
	return func(processes string) {
		s.Do("allow the plugin "+processes+" processes", func(context.Context) error {
			return os.WriteFile(filepath.Join(group, "pids.max"), []byte(processes), 0o600)
		})
	}
}

// processGroup creates a control group on the machine that counts processes, with either version,
// and removes it at the end.
func processGroup(s *scenario.Scenario) string {
	group := filepath.Join("/sys/fs/cgroup/pids", filepath.Base(s.Cluster.Directory()))
	if _, err := os.Stat(filepath.Dir(group)); errors.Is(err, fs.ErrNotExist) {
		group = filepath.Join("/sys/fs/cgroup", filepath.Base(s.Cluster.Directory()))
	}
	s.Do("make "+group, func(context.Context) error { return os.Mkdir(group, 0o755) })
	s.Cleanup("remove "+group, func(context.Context) error { return os.Remove(group) })
	return group
}
