// SPDX-License-Identifier: Apache-2.0

package podnetns_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

const address, other = fakenode.Address, "10.244.1.11/32"

// pod returns the pod that the tests look for.
func pod() podnetns.Pod {
	return podnetns.Pod{
		Namespace: "shop", Name: "cart-0", UID: uid, Containers: []string{container},
		IPs: []netip.Addr{netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("fd00:10:244:1::a")},
	}
}

// TestFind finds the namespace by each source alone, and by all together, and never by the path
// recorded on the host.
func TestFind(t *testing.T) {
	t.Parallel()
	const host = "/var/run/netns/cni-1"
	for name, test := range map[string]struct {
		prepare func(n *fakenode.Node, ns *sandbox.Namespace)
		by      []podnetns.Source
	}{
		"journal": {func(n *fakenode.Node, ns *sandbox.Namespace) { n.Record(uid, ns, host, nil) }, []podnetns.Source{podnetns.SourceJournal}},
		"results": {func(n *fakenode.Node, _ *sandbox.Namespace) { n.Result(container, host, uid) }, []podnetns.Source{podnetns.SourceResults}},
		"processes": {
			func(n *fakenode.Node, ns *sandbox.Namespace) {
				n.Process(ns.Path(), fakenode.Cgroup(uid, "cri-containerd"))
				n.Process(ns.Path(), fakenode.Cgroup(uid, "cri-containerd"))
			},
			[]podnetns.Source{podnetns.SourceProcesses},
		},
		"CRI-O without a process of its own in the pod": {
			func(n *fakenode.Node, ns *sandbox.Namespace) {
				n.Process("/proc/1/ns/net", fakenode.Cgroup(uid, "crio-conmon"))
				n.Process(ns.Path(), fakenode.Cgroup(uid, "crio"))
			},
			[]podnetns.Source{podnetns.SourceProcesses},
		},
		"a container id alone": {
			func(n *fakenode.Node, ns *sandbox.Namespace) {
				n.Process(ns.Path(), "0::/system.slice/docker-"+container+".scope\n")
			},
			[]podnetns.Source{podnetns.SourceProcesses},
		},
		"all": {
			func(n *fakenode.Node, ns *sandbox.Namespace) {
				n.Record(uid, ns, host, nil)
				n.Result(container, host, uid)
				n.Process(ns.Path(), fakenode.Cgroup(uid, "cri-containerd"))
			},
			[]podnetns.Source{podnetns.SourceJournal, podnetns.SourceResults, podnetns.SourceProcesses},
		},
		"a record of the time before, by a process id": {
			func(n *fakenode.Node, ns *sandbox.Namespace) {
				n.Record(uid, nil, "/proc/4711/ns/net", nil)
				n.Process(ns.Path(), fakenode.Cgroup(uid, "crio"))
			},
			[]podnetns.Source{podnetns.SourceProcesses},
		},
		"a result of another pod of the name, and a stranger with its address": {
			func(n *fakenode.Node, ns *sandbox.Namespace) {
				n.Result(container, "/var/run/netns/double", otherUID)
				n.Process(n.Namespace("double", address).Path(), "0::/user.slice\n")
				n.Process(ns.Path(), fakenode.Cgroup(uid, "crio"))
			},
			[]podnetns.Source{podnetns.SourceProcesses},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := fakenode.New(t)
			ns := n.Namespace("cni-1", address)
			test.prepare(n, ns)
			found, err := n.Finder().Find(t.Context(), pod())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = found.Netns.Close() }()
			if found.Netns.ID() != n.ID(ns.Path()) {
				t.Errorf("found %s", found.Netns)
			}
			var by []podnetns.Source
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
	prepare func(n *fakenode.Node, p *podnetns.Pod)
	want    podnetns.Obstacle
} {
	const host = "/var/run/netns/cni-1"
	own := fakenode.Cgroup(uid, "cri-containerd")
	return map[string]struct {
		prepare func(n *fakenode.Node, p *podnetns.Pod)
		want    podnetns.Obstacle
	}{
		"in the host's network": {func(_ *fakenode.Node, p *podnetns.Pod) { p.HostNetwork = true }, podnetns.ObstacleHostNetwork},
		"no UID":                {func(_ *fakenode.Node, p *podnetns.Pod) { p.UID = "" }, podnetns.ObstacleIncomplete},
		"no address":            {func(_ *fakenode.Node, p *podnetns.Pod) { p.IPs = nil }, podnetns.ObstacleIncomplete},
		"nothing":               {func(*fakenode.Node, *podnetns.Pod) {}, podnetns.ObstacleNotFound},
		"processes in the host's namespace": {
			func(n *fakenode.Node, _ *podnetns.Pod) { n.Process("/proc/1/ns/net", own) }, podnetns.ObstacleHostNetwork,
		},
		"the host's is that of the record": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				ns := n.Namespace("cni-1", address)
				n.Record(uid, ns, host, nil)
				n.Link(ns.Path(), filepath.Join(n.Roots.Proc, "1", "ns", "net"))
			},
			podnetns.ObstacleHostNetwork,
		},
		"created again": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				ns := n.Namespace("cni-1", address)
				n.Record(otherUID, ns, host, nil)
				n.Result(container, host, otherUID)
				n.Process(ns.Path(), fakenode.Cgroup(otherUID, "cri-containerd"))
			},
			podnetns.ObstacleAnotherUID,
		},
		"a stranger with its address": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				n.Process(n.Namespace("cni-1", address).Path(), "0::/user.slice\n")
			},
			podnetns.ObstacleUnproven,
		},
		"a stranger that isn't mounted": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				n.Process(n.Namespace("cni-1", address).Path(), "0::/user.slice\n")
				n.Roots.Netns = nil
			},
			podnetns.ObstacleUnproven,
		},
		"a runtime that names no UID": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				n.Namespace("cni-1", address)
				n.Result(container, host, "")
			},
			podnetns.ObstacleUnproven,
		},
		"vanished": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				n.Record(uid, nil, host, nil)
				n.Result(container, host, uid)
			},
			podnetns.ObstacleVanished,
		},
		"a mount that isn't seen": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				n.Result(container, host, uid)
				if err := os.WriteFile(filepath.Join(n.Roots.Netns[1], "cni-1"), nil, 0o600); err != nil {
					n.Fatal(err)
				}
			},
			podnetns.ObstacleVanished,
		},
		"another namespace under the path": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				n.Namespace("cni-1", address)
				n.Record(uid, n.Namespace("cni-2"), host, nil)
			},
			podnetns.ObstacleVanished,
		},
		"a process that has ended": {
			func(n *fakenode.Node, _ *podnetns.Pod) { n.Process(filepath.Join(n.Roots.Proc, "gone"), own) }, podnetns.ObstacleVanished,
		},
		"another address": {
			func(n *fakenode.Node, _ *podnetns.Pod) { n.Process(n.Namespace("cni-1", other).Path(), own) }, podnetns.ObstacleAnotherAddress,
		},
		"two that disagree": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				n.Record(uid, n.Namespace("cni-1", address), host, nil)
				n.Process(n.Namespace("cni-2", address).Path(), own)
			},
			podnetns.ObstacleAmbiguous,
		},
		"shared with another pod": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				ns := n.Namespace("cni-1", address)
				n.Record(uid, ns, host, nil)
				n.Process(ns.Path(), fakenode.Cgroup(otherUID, "cri-containerd"))
			},
			podnetns.ObstacleShared,
		},
		"a record that cannot be read": {
			func(n *fakenode.Node, _ *podnetns.Pod) {
				n.Record(uid, n.Namespace("cni-1", address), host, nil)
				if err := os.WriteFile(filepath.Join(n.Roots.Journal, "pods@"+container+"@eth0.json"), []byte("{"), 0o600); err != nil {
					n.Fatal(err)
				}
			},
			podnetns.ObstacleUnreadable,
		},
	}
}

// TestRefuses: a refusal has its reason, and what was looked at.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, p := fakenode.New(t), pod()
			test.prepare(n, &p)
			found, err := n.Finder().Find(t.Context(), p)
			var refusal *podnetns.RefusalError
			if !errors.As(err, &refusal) || refusal.Obstacle != test.want || found != nil {
				t.Fatalf("got %v, %v, want %s", found, err, test.want)
			}
			if refusal.Pod.UID != p.UID || refusal.Detail == "" {
				t.Errorf("got %+v", refusal)
			}
			t.Log(err)
		})
	}
}

// TestFindsWhatHasChanged: a file that was written again is read again.
func TestFindsWhatHasChanged(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	first, second := n.Namespace("cni-1", address), n.Namespace("cni-2", address)
	finder := n.Finder()
	for _, ns := range []*sandbox.Namespace{first, second, first} {
		n.Record(uid, ns, ns.Path(), nil)
		found, err := finder.Find(t.Context(), pod())
		if err != nil {
			t.Fatal(err)
		}
		if found.Netns.ID() != n.ID(ns.Path()) {
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
	if _, err := podnetns.NewFinder(podnetns.Roots{Netns: []string{"run/netns"}}); err == nil {
		t.Error("a relative path was taken")
	}
	if _, err := podnetns.NewFinder(podnetns.Roots{}); errors.Is(err, interception.ErrUnsupported) || err != nil {
		t.Errorf("without roots: %v", err)
	}
}
