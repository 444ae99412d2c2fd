// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/interception/podsource"
)

// node is the part of a Kubernetes node's file system that matters here, and the images with its
// programs, below one directory.
type node struct{ directory string }

func nodeIn(directory string) node { return node{directory} }

func (n node) path(elements ...string) string {
	return filepath.Join(append([]string{n.directory}, elements...)...)
}

// The places of a node, named as on real ones.
func (n node) netDir() string   { return n.path("node", "etc", "cni", "net.d") }
func (n node) binDir() string   { return n.path("node", "opt", "cni", "bin") }
func (n node) cacheDir() string { return n.path("node", "var", "lib", "cni") }
func (n node) runDir() string   { return n.path("node", "run", "istio-cni") }
func (n node) netnsDir() string { return n.path("node", "run", "netns") }

// builtDir receives the binaries.
func (n node) builtDir() string { return n.path("built") }

// image is the file system of install-cni's image, with the plugin to install in sourceDir.
func (n node) image() string     { return n.path("image") }
func (n node) sourceDir() string { return n.path("image", "opt", "cni", "bin") }

func (n node) serviceAccountDir() string { return n.path("serviceaccount") }
func (n node) logs() string              { return n.path("logs") }
func (n node) conflist() string          { return filepath.Join(n.netDir(), "10-bridge.conflist") }
func (n node) kubeconfig() string        { return filepath.Join(n.runDir(), "istio-cni-kubeconfig") }

// ambientDir is the directory of node-ambient's records.
func (n node) ambientDir() string { return filepath.Join(n.runDir(), "ambient") }

// The sockets of ambient mode.
func (n node) feedSocket() string  { return filepath.Join(n.runDir(), "node-watcher", "feed.sock") }
func (n node) eventSocket() string { return filepath.Join(n.runDir(), "pluginevent.sock") }
func (n node) proxySocket() string { return n.path("node", "run", "ztunnel", "ztunnel.sock") }

// longestSocket is the longest path of a socket, in bytes (unix(7)).
const longestSocket = 107

// make makes the directories. It refuses a directory whose path is too long for the sockets.
func (n node) make() error {
	for _, socket := range []string{filepath.Join(n.runDir(), podsource.AgentSocket), n.feedSocket(), n.eventSocket(), n.proxySocket()} {
		if len(socket) > longestSocket {
			return fmt.Errorf("%s has %d bytes, and a socket's path at most %d: set TMPDIR to a shorter directory", socket, len(socket), longestSocket)
		}
	}
	for _, directory := range []string{
		n.netDir(), n.binDir(), n.cacheDir(), n.runDir(), n.netnsDir(), n.builtDir(), n.image(), n.sourceDir(), n.serviceAccountDir(), n.logs(),
	} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return fmt.Errorf("make the node's directories: %w", err)
		}
	}
	return nil
}

func (n node) log(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(n.logs(), name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// note writes a text beside the logs, for the user to read.
func (n node) note(name, text string) error {
	return os.WriteFile(filepath.Join(n.logs(), name), []byte(text), 0o600)
}

func (n node) hasLogs() bool {
	entries, err := os.ReadDir(n.logs())
	return err == nil && len(entries) > 0
}

const (
	module     = "github.com/meshcni/meshcni"
	cniPlugins = "github.com/containernetworking/plugins/plugins"
)

type program struct{ importPath, directory string }

func (n node) programs() []program {
	return []program{
		{module + "/examples/install-cni", n.image()},
		{module + "/examples/istio-cni", n.sourceDir()},
		{module + "/examples/node-ambient", n.image()},
		{cniPlugins + "/main/bridge", n.binDir()},
		{cniPlugins + "/main/loopback", n.binDir()},
		{cniPlugins + "/ipam/host-local", n.binDir()},
	}
}

func (n node) provision(binaries string) error {
	for _, p := range n.programs() {
		name := filepath.Base(p.importPath)
		if err := copyProgram(filepath.Join(p.directory, name), filepath.Join(binaries, name)); err != nil {
			return err
		}
	}
	return nil
}

// build builds the programs into a directory: without cgo, since a plugin must run on any node, and
// without git's version data, since git refuses a clone that belongs to another user.
func (n node) build(ctx context.Context, to string) error {
	args := []string{"build", "-buildvcs=false", "-o", to + string(filepath.Separator)}
	for _, p := range n.programs() {
		args = append(args, p.importPath)
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := command.CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w; install Go from https://go.dev/dl, or name built binaries with --binaries", err)
	case err != nil:
		return fmt.Errorf("go build: %w; this has to run in a clone of %s:\n%s", err, module, strings.TrimSpace(string(output)))
	}
	return nil
}

func copyProgram(to, from string) error {
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o755)
	}
	if err != nil {
		return fmt.Errorf("take a binary: %w", err)
	}
	return nil
}

// The node's pod network.
const (
	podSubnet4 = "10.244.1.0/24"
	podSubnet6 = "fd00:10:244:1::/64"
	bridgeName = "cni0"
)

// writeConflist writes the primary CNI configuration, as a network's own installer would. Its
// unusual formatting shows that the daemon leaves other programs' text as it is.
func (n node) writeConflist(ipv6 bool) ([]byte, error) {
	ranges, routes := fmt.Sprintf(`[{"subnet": "%s"}]`, podSubnet4), `{"dst": "0.0.0.0/0"}`
	if ipv6 {
		ranges += fmt.Sprintf(`, [{"subnet": "%s"}]`, podSubnet6)
		routes += `, {"dst": "::/0"}`
	}
	text := fmt.Sprintf(`{
    "name": "k8s-pod-network",
    "cniVersion": "1.0.0",
    "plugins": [
        {
            "type": "bridge", "bridge": %q, "mtu": 1500,
            "isGateway": true, "ipMasq": false, "hairpinMode": true, "promiscMode": false,
            "ipam": {
                "type": "host-local", "dataDir": %q,
                "ranges": [%s],
                "routes": [%s]
            }
        }
    ]
}
`, bridgeName, filepath.Join(n.cacheDir(), "networks"), ranges, routes)
	return []byte(text), os.WriteFile(n.conflist(), []byte(text), 0o644)
}

// writeSecret writes a file that Kubernetes mounts into the daemon's pod.
func (n node) writeSecret(name string, content []byte) error {
	return os.WriteFile(filepath.Join(n.serviceAccountDir(), name), content, 0o600)
}
