// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// NodeOptions describe a node.
type NodeOptions struct {
	// Network is the cluster's network on this node. The zero value leaves /etc/cni/net.d empty,
	// and the node is not ready.
	Network Network
	// Images are archives of images that containerd accepts; they are imported before the kubelet
	// starts.
	Images []string
	// Containerd is the directory of another containerd and its shim. The zero value uses the
	// cluster's.
	Containerd string
	// Taints are those with which the kubelet registers the node, each as key:effect.
	Taints []string
}

// Node is one node of a cluster. Its methods must not be called at the same time.
type Node struct {
	// Name is the node's name in the cluster.
	Name string

	number  int
	cluster *Cluster
	options NodeOptions

	mu      sync.Mutex
	command *exec.Cmd
	ended   chan struct{}
}

// boot is the input of the node's first process.
type boot struct {
	Name       string
	Directory  string   // the node's
	Logs       string   // for each component's output
	Programs   []string // directories, placed before those of PATH
	Kubernetes string
	Images     []string
	Files      map[string]string // configurations, by their name in Directory
	Kubelet    []string
	Proxy      []string
}

// directory returns the node's persistent directory.
func (n *Node) directory() string { return filepath.Join(n.cluster.directory, n.Name) }

// Path returns the path, outside the node, of a file in the node: Path("/etc/cni/net.d"). It is
// empty while the node is not started.
func (n *Node) Path(name string) string {
	if n.pid() == 0 {
		return ""
	}
	return filepath.Join("/proc", strconv.Itoa(n.pid()), "root", name)
}

// pid returns the id, outside the node, of the node's first process; 0 while it is not started.
func (n *Node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.command == nil {
		return 0
	}
	return n.command.Process.Pid
}

// prepare makes the node's identity and directories, which outlast its processes.
func (n *Node) prepare() error {
	of := identity{name: n.Name, user: "system:node:" + n.Name, groups: []string{"system:nodes"}, hosts: []string{n.Name}}
	for _, address := range n.addresses() {
		of.addresses = append(of.addresses, net.ParseIP(address))
	}
	if err := n.cluster.keys.issue(of); err != nil {
		return err
	}
	if err := n.cluster.keys.kubeconfig(n.Name, n.server()); err != nil {
		return err
	}
	for _, kept := range keptDirectories() {
		if err := os.MkdirAll(filepath.Join(n.directory(), kept.name), 0o755); err != nil {
			return err
		}
	}
	if err := n.installPlugins(); err != nil {
		return err
	}
	return n.InstallNetwork(n.options.Network)
}

// InstallNetwork writes a network's configuration on the node, as the network's agent does.
func (n *Node) InstallNetwork(network Network) error {
	return network.Install(filepath.Join(n.directory(), "net.d"), n.number)
}

// NetworkConfiguration returns what [Node.InstallNetwork] writes to [FileName] on this node.
func (n *Node) NetworkConfiguration(network Network) string { return network.Configuration(n.number) }

// installPlugins copies the reference plugins and the tests' plugins into the node's directory of
// plugins.
func (n *Node) installPlugins() error {
	plugins := slices.Clone(n.cluster.options.Plugins)
	for _, name := range []string{"bridge", "host-local", "loopback", "portmap", "ptp"} {
		plugins = append(plugins, filepath.Join(n.cluster.options.Runtime, name))
	}
	for _, path := range plugins {
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(n.directory(), "cni-bin", filepath.Base(path)), program, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the node's processes, as a boot does: /run is empty, and other files are kept. It
// does not wait until the node is ready.
func (n *Node) Start() error {
	text, err := json.Marshal(n.boot())
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(n.cluster.Logs(), n.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := exec.CommandContext(context.Background(), "/proc/self/exe") // it lives until Kill
	command.Args = []string{InitName, n.Name}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWPID,
	}
	for _, archive := range n.options.Images { // starting at firstImage
		file, err := os.Open(archive)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		command.ExtraFiles = append(command.ExtraFiles, file)
	}
	goAhead, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	n.mu.Lock()
	n.command, n.ended = command, ended
	n.mu.Unlock()
	return n.release(goAhead, text)
}

// release connects the new node and lets its first process continue.
func (n *Node) release(goAhead io.WriteCloser, text []byte) error {
	if err := n.connect(n.cluster.Nodes()); err != nil {
		return err
	}
	_, err := goAhead.Write(text)
	return errors.Join(err, goAhead.Close())
}

func (n *Node) boot() boot {
	programs := []string{n.cluster.options.Runtime}
	if n.options.Containerd != "" {
		programs = []string{n.options.Containerd, n.cluster.options.Runtime}
	}
	return boot{
		Name: n.Name, Directory: n.directory(), Logs: n.cluster.Logs(), Programs: programs, Kubernetes: n.cluster.options.Kubernetes,
		Images: n.options.Images,
		Files: map[string]string{
			"containerd.toml": containerdConfiguration(n.cluster.options.PauseImage),
			"kubelet.yaml":    kubeletConfiguration(n),
			"resolv.conf":     "",
		},
		Kubelet: []string{
			"--config=" + filepath.Join(n.directory(), "kubelet.yaml"), "--kubeconfig=" + n.cluster.keys.path(n.Name+".kubeconfig"),
			"--hostname-override=" + n.Name, "--node-ip=" + strings.Join(n.addresses(), ","), "--v=2",
		},
		Proxy: []string{
			"--kubeconfig=" + n.cluster.keys.path("proxy.kubeconfig"), "--master=" + n.server(), "--hostname-override=" + n.Name,
			"--proxy-mode=iptables",
			"--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
			// These settings belong to the machine, not to the node.
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		},
	}
}

// Kill ends all processes of the node at once, as a power cut does, and waits for their end. The
// node may be started again; its control groups are then clean, as after a boot.
func (n *Node) Kill() {
	n.mu.Lock()
	command, ended := n.command, n.ended
	n.command = nil
	n.mu.Unlock()
	if command == nil {
		return
	}
	_ = command.Process.Kill()
	<-ended
	_ = removeControlGroups(n.directory()) // Stop reports what is left
}

// Run runs a command in the node and returns its output. The error includes the output.
func (n *Node) Run(ctx context.Context, command ...string) (string, error) {
	arguments := append([]string{"-a", "-t", strconv.Itoa(n.pid()), "--"}, command...)
	run := exec.CommandContext(ctx, "nsenter", arguments...)
	run.Env = append(os.Environ(), "PATH="+n.cluster.options.Runtime+":"+os.Getenv("PATH"))
	var output, complaints bytes.Buffer
	run.Stdout, run.Stderr = &output, &complaints
	if err := run.Run(); err != nil {
		return output.String(), fmt.Errorf("on %s, %q: %w: %s%s", n.Name, command, err, output.Bytes(), complaints.Bytes())
	}
	return output.String(), nil
}

// running returns an error if the node's first process has ended by itself.
func (n *Node) running() error {
	n.mu.Lock()
	command, ended := n.command, n.ended
	n.mu.Unlock()
	if command == nil {
		return nil
	}
	select {
	case <-ended:
		log := filepath.Join(n.cluster.Logs(), n.Name+".log")
		return fmt.Errorf("%s has ended: %v; the end of %s:\n%s", n.Name, command.ProcessState, log, lastLines(log))
	default:
		return nil
	}
}
