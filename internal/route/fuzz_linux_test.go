// SPDX-License-Identifier: Apache-2.0

package route

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

// everyKind returns a plan with an object of each kind.
func everyKind(t testing.TB) *interception.Plan {
	t.Helper()
	p, err := interception.Build("mesh-test", func(b *interception.Builder) {
		b.Link(interception.Link{ID: "a.link", Name: "mesh0", Why: "a link"})
		b.Address(interception.Address{ID: "an.address", Device: "lo", Prefix: netip.MustParsePrefix("::6/128"), Why: "an address"})
		b.Sysctl(interception.Sysctl{ID: "a.sysctl", Key: "ipv4/ip_forward", Value: 1, Why: "a sysctl"})
		b.Route(interception.Route{ID: "a.route", Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "lo", Table: 133, Why: "a route"})
		b.PolicyRule(interception.PolicyRule{
			ID: "a.rule", Family: interception.IPv4, Mark: interception.WholeMark(1), Table: 133, Priority: 1337, Why: "a policy rule",
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// FuzzScan has lists of links, addresses, routes and policy rules of any content: a change is
// prepared and tried, or there is an error.
func FuzzScan(f *testing.F) {
	address := append(make([]byte, unix.SizeofIfAddrmsg), attribute(unix.IFA_LOCAL, 10, 0, 0, 1)...)
	route := append(make([]byte, unix.SizeofRtMsg), attribute(unix.RTA_DST, 10, 0, 0, 0)...)
	route[0], route[1] = unix.AF_INET, 24
	rule := append(make([]byte, ruleHeader), attribute(nl.FRA_PRIORITY, 1, 2, 3, 4)...)
	f.Add(bytes.Replace(geneveMessage(), []byte("mesh0"), []byte("mesh9"), 1), address, route, rule)
	f.Add([]byte{}, []byte{1}, []byte{unix.AF_INET6, 255}, []byte{2})
	f.Fuzz(func(t *testing.T, link, address, route, rule []byte) {
		bodies := map[uint16][]byte{unix.RTM_GETLINK: link, unix.RTM_GETADDR: address, unix.RTM_GETROUTE: route, unix.RTM_GETRULE: rule}
		s, err := Dial(kerneltest.Answering(func(datagram []byte) [][]byte {
			kind := binary.NativeEndian.Uint16(datagram[4:])
			if body, there := bodies[kind]; there {
				return kerneltest.Messages(datagram, kind-2, body)
			}
			return kerneltest.Messages(datagram, kind)
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c, err := s.Prepare(everyKind(t), Owner{Name: "mesh-test", Protocol: 200}, Options{})
		if err != nil {
			return
		}
		if err := c.Do(t.Context()); err == nil {
			t.Error("a sysctl of no kernel was written")
		}
		_ = c.Finish()
	})
}
