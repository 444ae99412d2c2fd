// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// Node has a node's directories. Its methods fail the test if something cannot be made.
type Node struct {
	testing.TB
	Roots podnetns.Roots
	pids  int
}

// New makes the directories of a node that has no pod yet.
func New(t testing.TB) *Node {
	t.Helper()
	dir := t.TempDir()
	n := &Node{TB: t, pids: 1, Roots: podnetns.Roots{
		Proc: filepath.Join(dir, "proc"), Netns: []string{filepath.Join(dir, "none"), filepath.Join(dir, "netns")},
		Results: filepath.Join(dir, "results"), Journal: filepath.Join(dir, "journal"),
	}}
	init := filepath.Join(n.Roots.Proc, "1", "ns")
	for _, path := range []string{init, n.Roots.Netns[1], n.Roots.Results} {
		n.must(os.MkdirAll(path, 0o700))
	}
	n.Link("/proc/1/ns/net", filepath.Join(init, "net"))
	return n
}

func (n *Node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// Link makes a symbolic link, and replaces what is at the path.
func (n *Node) Link(to, path string) {
	n.Helper()
	_ = os.Remove(path) // mostly nothing is there
	n.must(os.Symlink(to, path))
}

// Write writes a file.
func (n *Node) Write(path, text string) {
	n.Helper()
	n.must(os.WriteFile(path, []byte(text), 0o600))
}

// Namespace creates a network namespace with addresses, mounted where the runtime mounts it.
func (n *Node) Namespace(name string, addresses ...string) *sandbox.Namespace {
	n.Helper()
	ns, err := sandbox.NewNamespace(filepath.Join(n.Roots.Netns[1], name))
	n.must(err)
	n.Cleanup(func() { _ = ns.Close() })
	for _, address := range addresses {
		n.must(ns.AddAddress(n.Context(), "lo", netip.MustParsePrefix(address)))
	}
	return ns
}

// Process adds a process with these cgroups in the namespace at a path.
func (n *Node) Process(netns, cgroup string) {
	n.Helper()
	n.pids++
	dir := filepath.Join(n.Roots.Proc, strconv.Itoa(n.pids))
	n.must(os.MkdirAll(filepath.Join(dir, "ns"), 0o700))
	n.Link(netns, filepath.Join(dir, "ns", "net"))
	n.Write(filepath.Join(dir, "cgroup"), cgroup)
}

// Result adds an entry about the pod shop/cart-0 to libcni's cache. Without a uid, the entry names
// none.
func (n *Node) Result(container, netns, uid string) {
	n.Helper()
	args := [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "cart-0"}}
	if uid != "" {
		args = append(args, [2]string{"K8S_POD_UID", uid})
	}
	entry, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": container, "ifName": "eth0", "networkName": "pods", "config": "e30=", "cniArgs": args,
		"result": map[string]any{"interfaces": []any{map[string]any{"name": "veth1"}, map[string]any{"name": "eth0", "sandbox": netns}}},
	})
	n.must(err)
	n.Write(filepath.Join(n.Roots.Results, "pods-"+container+"-eth0"), string(entry))
}

// Record writes the plugin's record of the pod shop/cart-0. A nil plan stands for a minimal one.
// The namespace may be nil.
func (n *Node) Record(uid string, ns *sandbox.Namespace, path string, plan *interception.Plan) {
	n.Helper()
	if plan == nil {
		var err error
		plan, err = interception.Build("istio-cni", func(b *interception.Builder) { b.NAT("output") })
		n.must(err)
	}
	record := journal.Record{
		Attachment: journal.Attachment{Network: "pods", ContainerID: Container, Interface: "eth0"}, Time: time.Now().UTC(), Planner: "v1",
		Namespace: "shop", Name: "cart-0", UID: uid, Netns: path, Plan: plan,
	}
	if ns != nil {
		record.NetnsID = n.ID(ns.Path())
	}
	n.must(n.Journal().Write(record))
}

// Journal is that of the plugin.
func (n *Node) Journal() journal.Journal { return journal.Journal{Directory: n.Roots.Journal} }

// ID returns the identity of the namespace at a path.
func (n *Node) ID(path string) interception.NetnsID {
	n.Helper()
	ns, err := interception.OpenNetns(path, interception.NetnsOptions{})
	n.must(err)
	defer func() { _ = ns.Close() }()
	return ns.ID()
}

// Finder finds the node's pods.
func (n *Node) Finder() *podnetns.Finder {
	n.Helper()
	finder, err := podnetns.NewFinder(n.Roots)
	n.must(err)
	return finder
}
