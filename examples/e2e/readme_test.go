// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestREADME runs the commands of the section "Install on a cluster". The image that they build is
// on the nodes already.
func TestREADME(t *testing.T) {
	suite.Long(t)
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Install on a cluster\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("README has no such section")
	}
	s := suite.Begin(t)
	s.Do("uninstall", func(context.Context) error { return s.UninstallRelease(scenario.ReleaseName) })
	for _, block := range strings.Split(section, "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			command, _, _ := strings.Cut(line, "#")
			if words := strings.Fields(command); len(words) > 0 {
				follow(t, s, words)
			}
		}
	}
}

// follow runs a command line of the README.
func follow(t *testing.T, s *scenario.Scenario, words []string) {
	t.Helper()
	switch line := strings.Join(words, " "); {
	case words[0] == "make":
		if said, err := exec.CommandContext(t.Context(), "make", append([]string{"-C", "../..", "-n"}, words[1:]...)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, said)
		}
	case strings.Contains(line, "images import bin/release/image.oci.tar"):
		for _, node := range s.Cluster.Nodes() {
			s.Do("give the image to "+node.Name, func(ctx context.Context) error {
				image := product.TestReference("install-cni", scenario.FirstVersion)
				_, err := node.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", image, "ghcr.io/meshcni/install-cni:0.1.0")
				return err
			})
		}
	case words[0] == "helm":
		s.Do(line, func(ctx context.Context) error { return s.Helm(ctx, words[1:]...) })
	case strings.HasPrefix(line, "kubectl rollout status --namespace istio-system daemonset/istio-cni-node"):
		for _, node := range s.Cluster.Nodes() {
			s.Daemon(node)
		}
	case strings.HasPrefix(line, "kubectl exec --namespace istio-system daemonset/istio-cni-node -- install-cni "):
		if said, err := s.Exec(s.Daemon(s.Bridge), "install-cni", "install-cni", "status"); err != nil {
			t.Errorf("%s: %v\n%s", line, err, said)
		}
		pod := s.Pod(scenario.Workload{Name: "captured", Injected: true, Node: s.Bridge.Name})
		if s.Rules(pod) == "" {
			t.Error("a pod isn't captured")
		}
	default:
		t.Errorf("nobody knows how to follow %q", line)
	}
}
