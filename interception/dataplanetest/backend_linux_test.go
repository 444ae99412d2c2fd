// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// backend is a dataplane to compare with others.
type backend struct {
	name      string
	dataplane interception.Dataplane
}

// backends returns all that program a kernel.
func backends(t testing.TB) []backend {
	t.Helper()
	native, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := []backend{{"nftables", native}}
	for _, flavour := range []iptables.Flavour{iptables.NFT, iptables.Legacy} {
		d, err := iptables.New(iptables.Options{Flavour: flavour})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, backend{"iptables-" + string(flavour), d})
	}
	return all
}

// host is a network namespace as seen by the dataplane and by sockets.
type host struct {
	*interception.Netns
	namespace *sandbox.Namespace
}

// newHost creates a namespace that has to be closed.
func newHost(t testing.TB) host {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	ns, err := interception.OpenNetns(namespace.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return host{ns, namespace}
}

func (h host) close(t testing.TB) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := h.namespace.Close(); err != nil {
		t.Error(err)
	}
}

// apply applies a plan that the kernel must accept.
func (h host) apply(t testing.TB, d interception.Dataplane, plan *interception.Plan) {
	t.Helper()
	if err := d.Apply(t.Context(), h.Netns, plan); err != nil {
		t.Fatal(err)
	}
}

// sidecarPlan returns the default plan with changes.
func sidecarPlan(t testing.TB, facts interception.Facts, change func(*sidecar.Redirect)) *interception.Plan {
	t.Helper()
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	change(&redirect)
	plan, err := sidecar.Plan(redirect, facts, "istio-cni")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// scattered returns n addresses of 10.0.0.0/8 that no prefix joins.
func scattered(n int) interception.PrefixSet {
	list := make([]netip.Prefix, n)
	for i := range list {
		var address [4]byte
		binary.BigEndian.PutUint32(address[:], 10<<24|uint32(i)*2654435761>>8)
		list[i] = netip.PrefixFrom(netip.AddrFrom4(address), 32)
	}
	return interception.Prefixes(list...)
}
