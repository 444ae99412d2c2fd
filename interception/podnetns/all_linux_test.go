// SPDX-License-Identifier: Apache-2.0

package podnetns_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
)

// many returns pods without their namespaces: each has an address of its own.
func many(count int) []podnetns.Pod {
	var pods []podnetns.Pod
	for i := range count {
		pods = append(pods, podnetns.Pod{
			Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: fmt.Sprintf("%08x-0000-4000-8000-000000000000", i),
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)})},
		})
	}
	return pods
}

// populate gives each pod a namespace, and processes in it.
func populate(n *fakenode.Node, pods []podnetns.Pod, processes int) {
	for _, p := range pods {
		ns := n.Namespace("cni-"+p.Name, p.IPs[0].String()+"/32")
		for range processes {
			n.Process(ns.Path(), fakenode.Cgroup(p.UID, "cri-containerd"))
		}
	}
}

// opened counts how often a file is opened while something is done.
func opened(t *testing.T, path string, do func()) int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	// The kernel merges equal events: a close separates two that are of the same kind.
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_CLOSE); err != nil {
		t.Fatal(err)
	}
	do()
	buffer := make([]byte, 64<<10)
	size, err := unix.Read(fd, buffer)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for event := range slices.Chunk(buffer[:size], unix.SizeofInotifyEvent) {
		if binary.NativeEndian.Uint32(event[4:])&unix.IN_OPEN != 0 {
			count++
		}
	}
	return count
}

// TestFindAll finds each pod's own namespace and refuses what Find refuses, in the order of the
// pods, and reads each process once for all of them.
func TestFindAll(t *testing.T) {
	t.Parallel()
	n, pods := fakenode.New(t), many(5)
	populate(n, pods[:3], 2)
	n.Process(filepath.Join(n.Roots.Netns[1], "cni-web-1"), fakenode.Cgroup(pods[4].UID, "cri-containerd"))
	n.Process("/proc/1/ns/net", "0::/user.slice\n")
	var findings []podnetns.Finding
	foreign := filepath.Join(n.Roots.Proc, "9", "cgroup")
	if reads := opened(t, foreign, func() { findings = n.Finder().FindAll(t.Context(), pods) }); reads != 1 {
		t.Errorf("the cgroups of a process of no pod were read %d times", reads)
	}
	want := []podnetns.Obstacle{"", podnetns.ObstacleShared, "", podnetns.ObstacleNotFound, podnetns.ObstacleAnotherAddress}
	if len(findings) != len(want) {
		t.Fatalf("%d findings", len(findings))
	}
	for i, finding := range findings {
		var refusal *podnetns.RefusalError
		switch {
		case want[i] != "":
			if !errors.As(finding.Err, &refusal) || refusal.Obstacle != want[i] || refusal.Pod.UID != pods[i].UID || finding.Found != nil {
				t.Errorf("pod %d: %v, %v, want %s", i, finding.Found, finding.Err, want[i])
			}
		case finding.Err != nil:
			t.Errorf("pod %d: %v", i, finding.Err)
		default:
			if finding.Found.Netns.ID() != n.ID(filepath.Join(n.Roots.Netns[1], "cni-"+pods[i].Name)) {
				t.Errorf("pod %d: %s", i, finding.Found.Netns)
			}
			if err := finding.Found.Netns.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestFindAllRefuses: what Find refuses, FindAll refuses for the same reason.
func TestFindAllRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, p := fakenode.New(t), pod()
			test.prepare(n, &p)
			for _, finding := range n.Finder().FindAll(t.Context(), []podnetns.Pod{p, p}) {
				var refusal *podnetns.RefusalError
				if !errors.As(finding.Err, &refusal) || refusal.Obstacle != test.want {
					t.Errorf("got %v, %v, want %s", finding.Found, finding.Err, test.want)
				}
			}
		})
	}
}

// TestFindAllEnds: after the end of its context, each pod has the context's error.
func TestFindAllEnds(t *testing.T) {
	t.Parallel()
	n, pods := fakenode.New(t), many(2)
	populate(n, pods, 1)
	cause := errors.New("the daemon ends")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, finding := range n.Finder().FindAll(ctx, pods) {
		if finding.Found != nil || !errors.Is(finding.Err, cause) {
			t.Errorf("got %v, %v", finding.Found, finding.Err)
		}
	}
}

// mostOfOne is how many times as long a search for 200 pods may take as one for a single pod.
const mostOfOne = 3.0

// BenchmarkFindAll finds 200 pods of a node with 2,000 processes, and one of them, and reports the
// ratio as x/one.
func BenchmarkFindAll(b *testing.B) {
	n, pods := fakenode.New(b), many(200)
	populate(n, pods, 10)
	finder := n.Finder()
	find := func(pods []podnetns.Pod) time.Duration {
		start := time.Now()
		findings := finder.FindAll(b.Context(), pods)
		took := time.Since(start)
		for _, finding := range findings {
			if finding.Err != nil {
				b.Fatal(finding.Err)
			}
			if err := finding.Found.Netns.Close(); err != nil {
				b.Fatal(err)
			}
		}
		return took
	}
	var all, one time.Duration
	for b.Loop() {
		all += find(pods)
		one += find(pods[:1])
	}
	b.ReportMetric(float64(all)/float64(one), "x/one")
	b.ReportMetric(float64(one)/float64(b.N), "ns/one")
	if times := float64(all) / float64(one); b.N >= 20 && times > mostOfOne {
		b.Errorf("NOT MET: 200 pods take %.1f times one, and the limit is %.0f", times, mostOfOne)
	}
}
