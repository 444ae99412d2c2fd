// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

func TestRecordLines(t *testing.T) {
	t.Parallel()
	record := Record{
		Sysctls: []SysctlRecord{
			{Key: "ipv4/conf/eth0.100/rp_filter", Before: 2}, {Key: "ipv4/x", Before: -1, Value: 1}, {Key: "ipv4/y", Value: 1, New: true},
		},
		Addresses: []AddressRecord{{"lo", netip.MustParsePrefix("::6/128")}, {"eth0", netip.MustParsePrefix("10.0.0.1/24")}},
		Found:     []AddressRecord{{"lo", netip.MustParsePrefix("127.0.0.1/8")}},
		FoundObjects: []string{
			textOf(interception.Route{Type: interception.RouteLocal, Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "lo", Table: 100}),
			textOf(interception.PolicyRule{Family: interception.IPv4, Mark: interception.WholeMark(1), Table: 100, Priority: 7}),
		},
	}
	want := []string{
		"sysctl ipv4/conf/eth0.100/rp_filter 2 0", "sysctl ipv4/x -1 1", "sysctl ipv4/y - 1",
		"address lo ::6/128", "address eth0 10.0.0.1/24", "found lo 127.0.0.1/8",
		"found route local 0.0.0.0/0 dev lo table 100", "found policy rule v4 priority 7 mark 0x1 table 100",
	}
	if diff := cmp.Diff(want, record.Lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if again, err := ParseRecord(want); err != nil || !again.Equal(record) {
		t.Errorf("read back: got %v and %v", again.Lines(), err)
	}
}

func TestParseRecordRefuses(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"", "sysctl", "sysctl ipv4/x 1", "sysctl ipv4/x 1 2 3", "sysctl ipv4/x a 1", "sysctl ipv4/x 1 a", "sysctl ../x 1 1", "sysctl /x/y 1 1",
		"sysctl x 1 1", "sysctl ipv4/../../kernel/x 1 1", "address lo", "address lo ::6", "address ../lo ::6/128", "other lo ::6/128", "found lo ::6",
		"found link mesh0 dummy and more", `found route local "::/0" dev lo`, `found route local \ dev lo`, "found route local \x01 dev lo",
	} {
		if got, err := ParseRecord([]string{line}); err == nil || !got.IsEmpty() {
			t.Errorf("%q: got %v", line, got.Lines())
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add("sysctl ipv4/conf/all/route_localnet 0 1")
	f.Add("sysctl ipv4/conf/mesh0/accept_local - 1")
	f.Add("address lo ::6/128")
	f.Add("found lo ::6/128")
	f.Add("found route local 0.0.0.0/0 dev lo table 100")
	f.Fuzz(func(t *testing.T, line string) {
		record, err := ParseRecord([]string{line})
		if err != nil {
			return
		}
		if again, err := ParseRecord(record.Lines()); err != nil || !again.Equal(record) {
			t.Errorf("%q is read as %v, and that as %v and %v", line, record.Lines(), again.Lines(), err)
		}
	})
}

// TestProtocol checks that owners' numbers, which kernels keep, do not change.
func TestProtocol(t *testing.T) {
	t.Parallel()
	numbers := map[uint8]bool{}
	for i := range 1000 {
		protocol := Protocol(interception.Owner(fmt.Sprintf("mesh-%d", i)))
		if protocol < FirstProtocol || protocol > LastProtocol {
			t.Errorf("protocol %d is outside of the range", protocol)
		}
		numbers[protocol] = true
	}
	if want := LastProtocol - FirstProtocol + 1; len(numbers) != want {
		t.Errorf("%d numbers are in use, want %d", len(numbers), want)
	}
	if got := Protocol("istio-cni"); got != 248 {
		t.Errorf("istio-cni has %d, and had 248", got)
	}
}
