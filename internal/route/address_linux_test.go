// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"
	"strconv"
	"strings"
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

// TestReleases has the releases of kernels of distributions, and what is none.
func TestReleases(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{
		"5.4.0-216-generic": false, "5.17": false, "5.18": true, "5.18-rc1": true, "6.1.0-13-amd64": true, "10.0": true,
		"4.18.0-553.el8_10.x86_64": false, "6.6.87.2-microsoft-standard-WSL2": true, "5.14.0-427.13.1.el9_4.x86_64+rt": false,
	} {
		if got, err := releaseLabelsAddresses(release); err != nil || got != want {
			t.Errorf("release %q: %t, %v, want %t", release, got, err, want)
		}
	}
	for _, release := range []string{"", "6", "6.", "six.1", "6.x", ".18"} {
		if got, err := releaseLabelsAddresses(release); err == nil || !strings.Contains(err.Error(), strconv.Quote(release)) {
			t.Errorf("release %q: %t, %v, want an error that names it", release, got, err)
		}
	}
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
