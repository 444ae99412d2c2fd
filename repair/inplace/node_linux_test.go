// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/internal/testing/repairmeshtest"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/inplace"
)

// node has a node's directories: its network namespaces are real, its processes are just files in
// proc.
type node struct {
	t     testing.TB
	roots inplace.Roots
	pids  int
}

func newNode(t testing.TB) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, pids: 1, roots: inplace.Roots{
		Proc: filepath.Join(dir, "proc"), Netns: []string{filepath.Join(dir, "none"), filepath.Join(dir, "netns")},
		Results: filepath.Join(dir, "results"), Journal: filepath.Join(dir, "journal"),
	}}
	for _, path := range []string{filepath.Join(n.roots.Proc, "1", "ns"), n.roots.Netns[1], n.roots.Results} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link(t, "/proc/1/ns/net", filepath.Join(n.roots.Proc, "1", "ns", "net"))
	return n
}

func link(t testing.TB, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// namespace creates a network namespace with addresses, mounted where the runtime mounts it.
func (n *node) namespace(name string, addresses ...string) *sandbox.Namespace {
	n.t.Helper()
	ns, err := sandbox.NewNamespace(filepath.Join(n.roots.Netns[1], name))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = ns.Close() })
	for _, address := range addresses {
		if err := ns.AddAddress(n.t.Context(), "lo", netip.MustParsePrefix(address)); err != nil {
			n.t.Fatal(err)
		}
	}
	return ns
}

// process adds a process with these cgroups in the namespace at a path.
func (n *node) process(netns, cgroup string) {
	n.t.Helper()
	n.pids++
	dir := filepath.Join(n.roots.Proc, strconv.Itoa(n.pids))
	if err := os.MkdirAll(filepath.Join(dir, "ns"), 0o700); err != nil {
		n.t.Fatal(err)
	}
	link(n.t, netns, filepath.Join(dir, "ns", "net"))
	if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// result adds an entry to libcni's cache.
func (n *node) result(netns, uid string) {
	n.t.Helper()
	n.resultOf(container, netns, uid)
}

// later adds an entry for a sandbox that is newer than the recorded one.
func (n *node) later(uid string) {
	n.t.Helper()
	n.resultOf("later", "/var/run/netns/cni-2", uid)
}

func (n *node) resultOf(container, netns, uid string) {
	n.t.Helper()
	args := [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "cart-0"}}
	if uid != "" {
		args = append(args, [2]string{"K8S_POD_UID", uid})
	}
	n.cached(map[string]any{
		"kind": "cniCacheV1", "containerId": container, "ifName": "eth0", "networkName": "pods", "config": "e30=", "cniArgs": args,
		"result": map[string]any{"interfaces": []any{map[string]any{"name": "veth1"}, map[string]any{"name": "eth0", "sandbox": netns}}},
	})
}

func (n *node) cached(entry map[string]any) {
	n.t.Helper()
	data, err := json.Marshal(entry)
	if err != nil {
		n.t.Fatal(err)
	}
	n.write(filepath.Join(n.roots.Results, "pods-"+fmt.Sprint(entry["containerId"])+"-eth0"), string(data))
}

func (n *node) write(path, text string) {
	n.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// record writes a record of the plugin.
func (n *node) record(ns *sandbox.Namespace, path, uid string, plan *interception.Plan) {
	n.t.Helper()
	if plan == nil {
		plan = planned(n.t, pod())
	}
	r := journal.Record{
		Attachment: journal.Attachment{Network: "pods", ContainerID: container, Interface: "eth0"}, Time: time.Now().UTC(), Planner: "v1",
		Namespace: "shop", Name: "cart-0", UID: uid, Netns: path, Plan: plan,
	}
	if ns != nil {
		r.NetnsID = idOf(n.t, ns.Path())
	}
	if err := n.journal().Write(r); err != nil {
		n.t.Fatal(err)
	}
}

// recordOf writes a record of another pod.
func (n *node) recordOf(name string, ns *sandbox.Namespace) {
	n.t.Helper()
	err := n.journal().Write(journal.Record{
		Attachment: journal.Attachment{Network: "pods", ContainerID: name, Interface: "eth0"}, Time: time.Now().UTC(), Planner: "v1",
		Namespace: "shop", Name: name, UID: otherUID, NetnsID: idOf(n.t, ns.Path()), Plan: planned(n.t, pod()),
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) journal() journal.Journal { return journal.Journal{Directory: n.roots.Journal} }

func idOf(t testing.TB, path string) interception.NetnsID {
	t.Helper()
	ns, err := interception.OpenNetns(path, interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	return ns.ID()
}

func (n *node) finder() *inplace.Finder {
	n.t.Helper()
	finder, err := inplace.NewFinder(n.roots)
	if err != nil {
		n.t.Fatal(err)
	}
	return finder
}

// pod returns a running pod with a sidecar.
func pod() repair.Pod {
	return repair.Pod{
		Pod: interception.Pod{
			Namespace: "shop", Name: "cart-0", UID: uid, Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			Containers: []interception.Container{{Name: "app"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}},
		},
		ResourceVersion: "7", NodeName: "node-1", Phase: repair.PhaseRunning,
		IPs:      []netip.Addr{netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("fd00:10:244:1::a")},
		Statuses: []repair.ContainerStatus{{Name: "app", ContainerID: container}},
	}
}

func planned(t testing.TB, p repair.Pod) *interception.Plan {
	t.Helper()
	plan, err := repairmeshtest.Istio().Plan(p.Pod, interception.Facts{IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
