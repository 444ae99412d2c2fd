// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

func plan(t *testing.T, addresses ...string) *interception.Plan {
	t.Helper()
	p, err := interception.Build("mesh-test", func(b *interception.Builder) {
		for i, address := range addresses {
			b.Address(interception.Address{
				ID: interception.RuleID("address." + string(rune('a'+i))), Device: "lo", Prefix: netip.MustParsePrefix(address), Why: "an address",
			})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestUnlabelledAddressIsRecordedFirst: if the process ends between the address and the record,
// nothing else shows that it is the owner's.
func TestUnlabelledAddressIsRecordedFirst(t *testing.T) {
	t.Parallel()
	for _, labels := range []bool{false, true} {
		s := newSocket(t)
		s.labels = labels
		var known Record
		for i, want := range []bool{!labels, false} {
			c, err := s.Prepare(plan(t, "fd00::1/128"), Owner{Name: "mesh-test", Protocol: 200}, Options{Record: known})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.During().GoesAhead(known); got != want {
				t.Errorf("labels: %t, call %d: the record goes ahead: %t, want %t", labels, i, got, want)
			}
			known = c.During()
		}
	}
}

// change prepares a plan and carries it out, and returns the record to keep.
func change(t *testing.T, s *Socket, p *interception.Plan, record Record) Record {
	t.Helper()
	c, err := s.Prepare(p, Owner{Name: p.Owner, Protocol: 200}, Options{Record: record})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(); err != nil {
		t.Fatal(err)
	}
	return c.After()
}

// has returns the addresses of the namespace, except those that the kernel gives lo.
func has(t *testing.T, s *Socket) []string {
	t.Helper()
	list, err := s.listAddresses()
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, a := range list {
		if !a.prefix.Addr().IsLoopback() {
			addresses = append(addresses, a.prefix.String())
		}
	}
	return addresses
}

// TestUnlabelledAddresses simulates a kernel without protocols: the record has the addresses.
func TestUnlabelledAddresses(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	foreign := Owner{Name: "mesh-other"} // whose addresses have no protocol
	c, err := s.Prepare(plan(t, "fd00::9/128"), foreign, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.labels = false
	record := change(t, s, plan(t, "fd00::1/128", "10.0.0.1/32", "fd00::9/128"), Record{})
	want := Record{
		Addresses: []AddressRecord{{"lo", netip.MustParsePrefix("fd00::1/128")}, {"lo", netip.MustParsePrefix("10.0.0.1/32")}},
		Found:     []AddressRecord{{"lo", netip.MustParsePrefix("fd00::9/128")}},
	}
	if !record.Equal(want) {
		t.Errorf("got %v, want %v", record.Lines(), want.Lines())
	}
	if record = change(t, s, plan(t, "fd00::1/128", "fd00::2/128"), record); len(record.Addresses) != 2 {
		t.Errorf("remembered after the second plan: %v", record.Lines())
	}
	if record = change(t, s, plan(t), record); !record.IsEmpty() {
		t.Errorf("remembered in the end: %v", record.Lines())
	}
	if diff := cmp.Diff([]string{"fd00::9/128"}, has(t, s)); diff != "" {
		t.Errorf("addresses in the end (-want +got):\n%s", diff)
	}
}

// TestLabelledAddresses needs no record.
func TestLabelledAddresses(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	if !s.labels {
		t.Skip("the kernel does not keep the protocol of an address: it needs Linux 5.18; TestUnlabelledAddresses has what is done then")
	}
	if record := change(t, s, plan(t, "fd00::1/128", "10.0.0.1/32"), Record{}); !record.IsEmpty() {
		t.Errorf("remembered: %v", record.Lines())
	}
	change(t, s, plan(t, "fd00::2/128"), Record{})
	if diff := cmp.Diff([]string{"fd00::2/128"}, has(t, s)); diff != "" {
		t.Errorf("addresses in the end (-want +got):\n%s", diff)
	}
}
