// SPDX-License-Identifier: Apache-2.0

package podnetns_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestVerify returns the namespace that was handed over, with the descriptor itself.
func TestVerify(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	ns := n.Namespace("cni-1", other, address)
	for name, verify := range map[string]func(podnetns.Pod, *os.File) (*interception.Netns, error){
		"Verify": n.Finder().Verify, "VerifyOwn": n.Finder().VerifyOwn,
	} {
		file := open(t, ns.Path())
		verified, err := verify(pod(), file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if verified.File() != file || verified.ID() != n.ID(ns.Path()) {
			t.Errorf("%s = %s", name, verified)
		}
		if err := verified.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestVerifyOwn: this process's own namespace is accepted only if the caller says so.
func TestVerifyOwn(t *testing.T) {
	t.Parallel()
	n, p := fakenode.New(t), pod()
	p.IPs = append(p.IPs, netip.MustParseAddr("127.0.0.1"))
	n.Link(n.Namespace("host").Path(), filepath.Join(n.Roots.Proc, "1", "ns", "net"))
	if _, err := n.Finder().Verify(p, open(t, "/proc/self/ns/net")); !errors.Is(err, interception.ErrHostNetns) {
		t.Errorf("Verify = %v", err)
	}
	ns, err := n.Finder().VerifyOwn(p, open(t, "/proc/self/ns/net"))
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Error(err)
	}
}

// TestVerifyRefuses: each refusal has its obstacle and its cause, and closes the file.
func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path    func(n *fakenode.Node) string
		change  func(p *podnetns.Pod)
		want    podnetns.Obstacle
		because error
	}{
		"a pod in the host's network": {own, func(p *podnetns.Pod) { p.HostNetwork = true }, podnetns.ObstacleHostNetwork, nil},
		"a pod without an address":    {own, func(p *podnetns.Pod) { p.IPs = nil }, podnetns.ObstacleIncomplete, nil},
		"another pod's namespace":     {func(n *fakenode.Node) string { return n.Namespace("cni-2", other).Path() }, nil, podnetns.ObstacleAnotherAddress, nil},
		"the host's": {func(n *fakenode.Node) string {
			path := own(n)
			n.Link(path, filepath.Join(n.Roots.Proc, "1", "ns", "net"))
			return path
		}, nil, podnetns.ObstacleHostNetwork, interception.ErrHostNetns},
		"another kind of namespace": {func(*fakenode.Node) string { return "/proc/self/ns/uts" }, nil, podnetns.ObstacleNotNetns, interception.ErrNotNetns},
		"a device":                  {func(*fakenode.Node) string { return os.DevNull }, nil, podnetns.ObstacleNotNetns, interception.ErrNotNetns},
		"an unknown host": {func(n *fakenode.Node) string {
			path := own(n)
			n.Link("nowhere", filepath.Join(n.Roots.Proc, "1", "ns", "net"))
			return path
		}, nil, podnetns.ObstacleUnreadable, os.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, p := fakenode.New(t), pod()
			file := open(t, test.path(n))
			if test.change != nil {
				test.change(&p)
			}
			ns, err := n.Finder().Verify(p, file)
			var refusal *podnetns.RefusalError
			if !errors.As(err, &refusal) || refusal.Obstacle != test.want || !errors.Is(refusal.Unwrap(), test.because) || ns != nil {
				t.Errorf("got %v, %v, want %s", ns, err, test.want)
			}
			if err := file.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the refused file was left open: %v", err)
			}
		})
	}
}

// TestVerifyWithoutFile: a file that is nil is no namespace.
func TestVerifyWithoutFile(t *testing.T) {
	t.Parallel()
	_, err := fakenode.New(t).Finder().Verify(pod(), nil)
	var refusal *podnetns.RefusalError
	if !errors.As(err, &refusal) || refusal.Obstacle != podnetns.ObstacleNotNetns {
		t.Errorf("got %v", err)
	}
}

func own(n *fakenode.Node) string { return n.Namespace("cni-1", address).Path() }
