// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestAPIServerAway stops the API server while pods of the mesh start. They are captured or wait,
// and all start once it is back.
func TestAPIServerAway(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	var pods []scenario.Workload
	for _, name := range []string{"first", "second", "third"} {
		pods = append(pods, scenario.Workload{Name: name, Injected: true, Node: s.PointToPoint.Name})
		s.Start(pods[len(pods)-1])
	}
	server := s.Cluster.ControlPlane.APIServer
	server.Stop()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	s.Do("wait for the API server", s.Cluster.AwaitAPIServer)
	for _, pod := range pods {
		s.Expect(client, s.AwaitPod(pod), 8080, "inbound "+pod.Name)
	}
	s.AwaitNode(s.PointToPoint, true)
}

// TestAPIServerAwayForLong stops the API server for longer. A daemon is not ready after three
// minutes without an answer, and one that starts meanwhile reports the reason at once. Both become
// ready when the API server is back. Running pods are not affected.
func TestAPIServerAwayForLong(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	pod := s.Pod(scenario.Workload{Name: "server", Injected: true, Node: s.Bridge.Name})
	probes := map[*cluster.Node]string{}
	for _, node := range []*cluster.Node{s.Bridge, s.PointToPoint} {
		probes[node] = "http://" + net.JoinHostPort(s.Daemon(node).Status.PodIP, "8000") + "/readyz"
	}
	answers := func(node *cluster.Node, words ...string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			text := readyText(ctx, probes[node])
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }), nil
		}
	}
	start := stopAPIServer(s)
	daemon := &soaked{Node: s.PointToPoint}
	if _, err := s.PointToPoint.Run(t.Context(), "kill", "-KILL", daemon.pid("install-cni")); err != nil {
		t.Fatal(err)
	}
	s.Await("a daemon that is started meanwhile", answers(s.PointToPoint, "pods: the API server doesn't answer", ": refused: "))
	s.AwaitFor(4*time.Minute, "a daemon that was there before", answers(s.Bridge, "pods: the API server has said nothing", ": refused, "))
	start()
	for node := range probes {
		s.Await("the daemon on "+node.Name, answers(node, "ok"))
		s.AwaitNode(node, true)
	}
	s.Expect(client, pod, 8080, "inbound server")
}

// stopAPIServer stops the API server, until the end of the scenario at the latest. The returned
// function starts it, and waits until it answers.
func stopAPIServer(s *scenario.Scenario) (start func()) {
	server := s.Cluster.ControlPlane.APIServer
	server.Stop()
	back := false
	s.Cleanup("have the API server back", func(ctx context.Context) error {
		if back {
			return nil
		}
		return errors.Join(server.Start(), s.Cluster.AwaitAPIServer(ctx))
	})
	return func() {
		back = true
		s.Do("have the API server back", func(ctx context.Context) error {
			return errors.Join(server.Start(), s.Cluster.AwaitAPIServer(ctx))
		})
	}
}

// readyText returns the answer of /readyz; empty if it does not answer.
func readyText(ctx context.Context, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return ""
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return string(text)
}
