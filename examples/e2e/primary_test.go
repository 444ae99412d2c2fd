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

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestPrimaryChanges checks that the plugin is back in the network, or in its own list, and pods
// are captured, after the network's configuration was rewritten, replaced, renamed, or turned into
// a link.
func TestPrimaryChanges(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	node := s.AddNode(s.Node(cluster.BridgeNetwork))
	s.AwaitNode(node, true)
	s.Daemon(node)
	client := s.Deploy(scenario.Workload{Name: "client", Node: s.Bridge.Name})
	directory := node.Path("/etc/cni/net.d")
	for _, change := range []struct {
		name string
		file string
		make func() error
	}{
		{"rewritten", cluster.FileName, func() error { return node.InstallNetwork(cluster.BridgeNetwork) }},
		{"replaced", cluster.FileName, func() error { return node.InstallNetwork(cluster.PointToPointNetwork) }},
		{"renamed", "05-e2e.conflist", func() error {
			return os.Rename(filepath.Join(directory, cluster.FileName), filepath.Join(directory, "05-e2e.conflist"))
		}},
		{"preceded", "01-other.conflist", func() error {
			text := node.NetworkConfiguration(cluster.BridgeNetwork)
			return os.WriteFile(filepath.Join(directory, "01-other.conflist"), []byte(text), 0o600)
		}},
		{"linked", "00-istio-cni.conflist", func() error { return linkNetwork(node, directory) }},
	} {
		if err := change.make(); err != nil {
			t.Fatalf("%s: %v", change.name, err)
		}
		s.Await("the plugin in "+change.file+", which was "+change.name, func(context.Context) (bool, error) {
			text, err := os.ReadFile(filepath.Join(directory, change.file))
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			return strings.Contains(string(text), `"istio-cni"`), err
		})
		server := s.Deploy(scenario.Workload{Name: change.name, Injected: true, Node: node.Name})
		s.Expect(client, server, 8080, "inbound "+change.name)
	}
}

// linkNetwork turns the primary configuration into a link to a file below a directory, given by the
// node's name for it.
func linkNetwork(node *cluster.Node, directory string) error {
	text := node.NetworkConfiguration(cluster.BridgeNetwork)
	unfinished := filepath.Join(directory, "unfinished")
	return errors.Join(
		os.Mkdir(filepath.Join(directory, "linked"), 0o755),
		os.WriteFile(filepath.Join(directory, "linked/network"), []byte(text), 0o600),
		os.Symlink("/etc/cni/net.d/linked/network", unfinished),
		os.Rename(unfinished, filepath.Join(directory, "01-other.conflist")),
	)
}
