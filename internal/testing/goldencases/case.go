// SPDX-License-Identifier: Apache-2.0

package goldencases

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/golden"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// Load reads the golden cases of a directory, each with the pod of golden.World.
func Load(t testing.TB, dir string) []dataplanetest.Case {
	t.Helper()
	loaded, err := golden.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var cases []dataplanetest.Case
	for _, c := range loaded {
		plan, _, err := c.Plan()
		if err != nil {
			t.Fatal(err)
		}
		redirect, _, err := c.Redirect()
		if err != nil {
			t.Fatal(err)
		}
		uid, gid := sample.Pod{Redirect: redirect}.Owner()
		cases = append(cases, dataplanetest.Case{Name: "golden-" + c.Name, Plan: plan, Packets: c.Packets, Pod: dataplanetest.PodOptions{
			Addresses:  []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")},
			Ports:      []uint16{uint16(golden.ApplicationPort)},
			ProxyPorts: []uint16{15001, 15006, 15053}, ProxyUID: uint32(uid), ProxyGID: uint32(gid),
		}})
	}
	return cases
}
