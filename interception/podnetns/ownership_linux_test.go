// SPDX-License-Identifier: Apache-2.0

package podnetns_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestAddressesShowOwnership verifies namespaces by addresses of each kind: one that both have is
// enough.
func TestAddressesShowOwnership(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		inside []string
		ips    []string
		want   podnetns.Obstacle
	}{
		"IPv4":                {[]string{"10.244.1.10/32"}, []string{"10.244.1.10"}, ""},
		"IPv4 as IPv6":        {[]string{"10.244.1.10/32"}, []string{"::ffff:10.244.1.10"}, ""},
		"IPv6":                {[]string{"fd00:10:244:1::a/128"}, []string{"fd00:10:244:1::a"}, ""},
		"IPv4 of both":        {[]string{"10.244.1.10/32"}, []string{"fd00:10:244:1::a", "10.244.1.10"}, ""},
		"IPv6 of both":        {[]string{"fd00:10:244:1::a/128"}, []string{"10.244.1.10", "fd00:10:244:1::a"}, ""},
		"one of several":      {[]string{"192.0.2.7/24", "10.244.1.10/24"}, []string{"10.244.1.10"}, ""},
		"another one":         {[]string{"10.244.1.11/24"}, []string{"10.244.1.10"}, podnetns.ObstacleAnotherAddress},
		"one of that network": {[]string{"10.244.1.10/24"}, []string{"10.244.1.0"}, podnetns.ObstacleAnotherAddress},
		"none inside":         {nil, []string{"10.244.1.10"}, podnetns.ObstacleAnotherAddress},
		"none of the pod":     {[]string{"10.244.1.10/32"}, nil, podnetns.ObstacleIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, p := fakenode.New(t), pod()
			p.IPs = nil
			for _, ip := range test.ips {
				p.IPs = append(p.IPs, netip.MustParseAddr(ip))
			}
			ns := n.Namespace("cni-1", test.inside...)
			n.Process(ns.Path(), fakenode.Cgroup(uid, "cri-containerd"))
			verified, verifyErr := n.Finder().Verify(p, open(t, ns.Path()))
			found, findErr := n.Finder().Find(t.Context(), p)
			for what, err := range map[string]error{"Verify": verifyErr, "Find": findErr} {
				refusal, _ := errors.AsType[*podnetns.RefusalError](err)
				if test.want == "" && err != nil || test.want != "" && (refusal == nil || refusal.Obstacle != test.want) {
					t.Errorf("%s: %v, want %q", what, err, test.want)
				}
			}
			if test.want == "" && verifyErr == nil && findErr == nil {
				if err := errors.Join(verified.Close(), found.Netns.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestOtherNamespacesOfThePod has processes of a pod in two namespaces. One that has none of the
// pod's addresses does not count; of two that have one, none is taken. What is not returned is
// closed.
func TestOtherNamespacesOfThePod(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		second string // an address of the other namespace
		want   podnetns.Obstacle
	}{
		"without an address of the pod": {other, ""}, "with the address": {address, podnetns.ObstacleAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := fakenode.New(t)
			own, another := n.Namespace("cni-1", address), n.Namespace("cni-2", test.second)
			before := []int{sandboxtest.Descriptors(t, own.Path()), sandboxtest.Descriptors(t, another.Path())}
			n.Process(another.Path(), fakenode.Cgroup(uid, "cri-containerd"))
			n.Process(own.Path(), fakenode.Cgroup(uid, "cri-containerd"))
			n.Process(another.Path(), fakenode.Cgroup(uid, "cri-containerd"))
			found, err := n.Finder().Find(t.Context(), pod())
			refusal, _ := errors.AsType[*podnetns.RefusalError](err)
			switch {
			case test.want != "" && (refusal == nil || refusal.Obstacle != test.want || found != nil):
				t.Errorf("got %v, %v, want %s", found, err, test.want)
			case test.want == "" && (err != nil || found.Netns.ID() != n.ID(own.Path())):
				t.Errorf("got %v, %v, want the pod's own", found, err)
			case test.want == "":
				if err := found.Netns.Close(); err != nil {
					t.Error(err)
				}
			}
			if after := []int{sandboxtest.Descriptors(t, own.Path()), sandboxtest.Descriptors(t, another.Path())}; after[0] != before[0] || after[1] != before[1] {
				t.Errorf("%v descriptors of the namespaces are open, want %v", after, before)
			}
		})
	}
}
