// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/inplace"
)

const address, other = "10.244.1.10/32", "10.244.1.11/32"

// cgroupOf returns the cgroup of a container of a pod, with the systemd driver.
func cgroupOf(uid, scope string) string {
	return fmt.Sprintf("0::/kubepods.slice/kubepods-pod%s.slice/%s-%s.scope\n", underscored(uid), scope, container)
}

// TestFind finds the namespace by each source alone, and by all together, and never by the path
// recorded on the host.
func TestFind(t *testing.T) {
	t.Parallel()
	const host = "/var/run/netns/cni-1"
	for name, test := range map[string]struct {
		prepare func(n *node, ns *sandbox.Namespace)
		by      []inplace.Source
	}{
		"journal": {func(n *node, ns *sandbox.Namespace) { n.record(ns, host, uid, nil) }, []inplace.Source{inplace.SourceJournal}},
		"results": {func(n *node, _ *sandbox.Namespace) { n.result(host, uid) }, []inplace.Source{inplace.SourceResults}},
		"processes": {
			func(n *node, ns *sandbox.Namespace) {
				n.process(ns.Path(), cgroupOf(uid, "cri-containerd"))
				n.process(ns.Path(), cgroupOf(uid, "cri-containerd"))
			},
			[]inplace.Source{inplace.SourceProcesses},
		},
		"CRI-O without a process of its own in the pod": {
			func(n *node, ns *sandbox.Namespace) {
				n.process("/proc/1/ns/net", cgroupOf(uid, "crio-conmon"))
				n.process(ns.Path(), cgroupOf(uid, "crio"))
			},
			[]inplace.Source{inplace.SourceProcesses},
		},
		"a container id alone": {
			func(n *node, ns *sandbox.Namespace) {
				n.process(ns.Path(), "0::/system.slice/docker-"+container+".scope\n")
			},
			[]inplace.Source{inplace.SourceProcesses},
		},
		"all": {
			func(n *node, ns *sandbox.Namespace) {
				n.record(ns, host, uid, nil)
				n.result(host, uid)
				n.process(ns.Path(), cgroupOf(uid, "cri-containerd"))
			},
			[]inplace.Source{inplace.SourceJournal, inplace.SourceResults, inplace.SourceProcesses},
		},
		"a record of the time before, by a process id": {
			func(n *node, ns *sandbox.Namespace) {
				n.record(nil, "/proc/4711/ns/net", uid, nil)
				n.process(ns.Path(), cgroupOf(uid, "crio"))
			},
			[]inplace.Source{inplace.SourceProcesses},
		},
		"a result of another pod of the name, and a stranger with its address": {
			func(n *node, ns *sandbox.Namespace) {
				n.result("/var/run/netns/double", otherUID)
				n.process(n.namespace("double", address).Path(), "0::/user.slice\n")
				n.process(ns.Path(), cgroupOf(uid, "crio"))
			},
			[]inplace.Source{inplace.SourceProcesses},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			ns := n.namespace("cni-1", address)
			test.prepare(n, ns)
			found, err := n.finder().Find(t.Context(), pod())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = found.Netns.Close() }()
			if found.Netns.ID() != idOf(t, ns.Path()) {
				t.Errorf("found %s", found.Netns)
			}
			var by []inplace.Source
			for _, lead := range found.Leads {
				by = append(by, lead.Source)
			}
			if !slices.Equal(by, test.by) {
				t.Errorf("found by %v, want %v", by, test.by)
			}
		})
	}
}

// refusals returns nodes and pods for which no namespace may be touched.
func refusals() map[string]struct {
	prepare func(n *node, p *repair.Pod)
	want    inplace.Reason
} {
	const host = "/var/run/netns/cni-1"
	own := cgroupOf(uid, "cri-containerd")
	return map[string]struct {
		prepare func(n *node, p *repair.Pod)
		want    inplace.Reason
	}{
		"in the host's network": {func(_ *node, p *repair.Pod) { p.HostNetwork = true }, inplace.ReasonHostNetwork},
		"no UID":                {func(_ *node, p *repair.Pod) { p.UID = "" }, inplace.ReasonIncomplete},
		"no address":            {func(_ *node, p *repair.Pod) { p.IPs = nil }, inplace.ReasonIncomplete},
		"nothing":               {func(*node, *repair.Pod) {}, inplace.ReasonNotFound},
		"processes in the host's namespace": {
			func(n *node, _ *repair.Pod) { n.process("/proc/1/ns/net", own) }, inplace.ReasonHostNetwork,
		},
		"the host's is that of the record": {
			func(n *node, _ *repair.Pod) {
				ns := n.namespace("cni-1", address)
				n.record(ns, host, uid, nil)
				replace(n.t, ns.Path(), filepath.Join(n.roots.Proc, "1", "ns", "net"))
			},
			inplace.ReasonHostNetwork,
		},
		"created again": {
			func(n *node, _ *repair.Pod) {
				ns := n.namespace("cni-1", address)
				n.record(ns, host, otherUID, nil)
				n.result(host, otherUID)
				n.process(ns.Path(), cgroupOf(otherUID, "cri-containerd"))
			},
			inplace.ReasonAnotherUID,
		},
		"a stranger with its address": {
			func(n *node, _ *repair.Pod) {
				n.process(n.namespace("cni-1", address).Path(), "0::/user.slice\n")
			},
			inplace.ReasonUnproven,
		},
		"a stranger that isn't mounted": {
			func(n *node, _ *repair.Pod) {
				n.process(n.namespace("cni-1", address).Path(), "0::/user.slice\n")
				n.roots.Netns = nil
			},
			inplace.ReasonUnproven,
		},
		"a runtime that names no UID": {
			func(n *node, _ *repair.Pod) {
				n.namespace("cni-1", address)
				n.result(host, "")
			},
			inplace.ReasonUnproven,
		},
		"vanished": {
			func(n *node, _ *repair.Pod) {
				n.record(nil, host, uid, nil)
				n.result(host, uid)
			},
			inplace.ReasonVanished,
		},
		"a mount that isn't seen": {
			func(n *node, _ *repair.Pod) {
				n.result(host, uid)
				if err := os.WriteFile(filepath.Join(n.roots.Netns[1], "cni-1"), nil, 0o600); err != nil {
					n.t.Fatal(err)
				}
			},
			inplace.ReasonVanished,
		},
		"another namespace under the path": {
			func(n *node, _ *repair.Pod) {
				n.namespace("cni-1", address)
				n.record(n.namespace("cni-2"), host, uid, nil)
			},
			inplace.ReasonVanished,
		},
		"a process that has ended": {
			func(n *node, _ *repair.Pod) { n.process(filepath.Join(n.roots.Proc, "gone"), own) }, inplace.ReasonVanished,
		},
		"another address": {
			func(n *node, _ *repair.Pod) { n.process(n.namespace("cni-1", other).Path(), own) }, inplace.ReasonAnotherAddress,
		},
		"two that disagree": {
			func(n *node, _ *repair.Pod) {
				n.record(n.namespace("cni-1", address), host, uid, nil)
				n.process(n.namespace("cni-2", address).Path(), own)
			},
			inplace.ReasonAmbiguous,
		},
		"shared with another pod": {
			func(n *node, _ *repair.Pod) {
				ns := n.namespace("cni-1", address)
				n.record(ns, host, uid, nil)
				n.process(ns.Path(), cgroupOf(otherUID, "cri-containerd"))
			},
			inplace.ReasonShared,
		},
		"a record that cannot be read": {
			func(n *node, _ *repair.Pod) {
				n.record(n.namespace("cni-1", address), host, uid, nil)
				if err := os.WriteFile(filepath.Join(n.roots.Journal, "pods@"+container+"@eth0.json"), []byte("{"), 0o600); err != nil {
					n.t.Fatal(err)
				}
			},
			inplace.ReasonUnreadable,
		},
	}
}

// replace makes a link lead elsewhere.
func replace(t testing.TB, to, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	link(t, to, path)
}

// TestRefuses: a refusal has its reason, and what was looked at.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, p := newNode(t), pod()
			test.prepare(n, &p)
			found, err := n.finder().Find(t.Context(), p)
			var refusal *inplace.RefusalError
			if !errors.As(err, &refusal) || refusal.Reason != test.want || found != nil {
				t.Fatalf("got %v, %v, want %s", found, err, test.want)
			}
			if refusal.Pod != p.Target() || refusal.Detail == "" {
				t.Errorf("got %+v", refusal)
			}
			t.Log(err)
		})
	}
}

// TestFindsWhatHasChanged: a file that was written again is read again.
func TestFindsWhatHasChanged(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first, second := n.namespace("cni-1", address), n.namespace("cni-2", address)
	finder := n.finder()
	for _, ns := range []*sandbox.Namespace{first, second, first} {
		n.record(ns, ns.Path(), uid, nil)
		found, err := finder.Find(t.Context(), pod())
		if err != nil {
			t.Fatal(err)
		}
		if found.Netns.ID() != idOf(t, ns.Path()) {
			t.Errorf("found %s", found.Netns)
		}
		if err := found.Netns.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRoots refuses paths that are not absolute.
func TestRoots(t *testing.T) {
	t.Parallel()
	if _, err := inplace.NewFinder(inplace.Roots{Netns: []string{"run/netns"}}); err == nil {
		t.Error("a relative path was taken")
	}
	if _, err := inplace.NewFinder(inplace.Roots{}); errors.Is(err, interception.ErrUnsupported) || err != nil {
		t.Errorf("without roots: %v", err)
	}
}
