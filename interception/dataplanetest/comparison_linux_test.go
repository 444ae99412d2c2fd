// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// captured returns the plan of a redirect of all outbound connections.
func captured(t *testing.T) *interception.Plan {
	t.Helper()
	plan, err := sidecar.Plan(sidecar.Redirect{
		Proxy:    sidecar.Proxy{UIDs: interception.UIDs(proxy), OutboundPort: outbound},
		Outbound: sidecar.Outbound{Include: interception.AllPrefixes()},
	}, interception.Facts{IPv6: true}, "test-mesh")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func out(dst string) trace.Packet {
	return trace.Packet{From: trace.Socket{}, Protocol: interception.ProtocolTCP, Dst: netip.MustParseAddrPort(dst)}
}

// TestCompareWithoutTheRules compares the traces of a plan with a kernel without it.
func TestCompareWithoutTheRules(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	with, err := pod.World(captured(t))
	if err != nil {
		t.Fatal(err)
	}
	without, err := pod.World(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, dst := range []string{"198.51.100.7:443", "[2001:db8:7::7]:443"} {
		c, err := pod.Compare(t.Context(), with, out(dst))
		if want := "it should arrive in pod"; err != nil || c.Disagreement != want {
			t.Errorf("%s, %v, want %q", c.Report(), err, want)
		}
		if !strings.Contains(c.Report(), "outbound.capture") {
			t.Errorf("the report doesn't name the rule:\n%s", c.Report())
		}
		if c, err := pod.Compare(t.Context(), without, out(dst)); err != nil || c.Disagreement != "" {
			t.Errorf("without a plan: %s, %v", c.Report(), err)
		}
	}
	further := out("198.51.100.7:443")
	further.Flags = interception.FlagACK
	if _, err := pod.Compare(t.Context(), with, further); !errors.Is(err, ErrProbe) {
		t.Errorf("a packet in the midst of a connection: %v, want %v", err, ErrProbe)
	}
	if _, err := pod.Compare(t.Context(), with, out("224.0.0.1:443")); !errors.Is(err, trace.ErrPacket) {
		t.Errorf("a packet that can't be: %v, want %v", err, trace.ErrPacket)
	}
}

// TestEveryObservationCounts changes each part of an observation that agrees with the trace.
func TestEveryObservationCounts(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	world, err := pod.World(captured(t))
	if err != nil {
		t.Fatal(err)
	}
	expected, err := pod.conversation(world, out("198.51.100.7:443"))
	if err != nil {
		t.Fatal(err)
	}
	agreed := Observation{
		Verdict: Accepted, At: InPod, Port: outbound, LocalAddr: netip.MustParseAddrPort("127.0.0.1:15001"),
		OriginalDst: netip.MustParseAddrPort("198.51.100.7:443"), Peer: netip.MustParseAddrPort("10.244.1.10:40000"), Answered: true,
	}
	if problem := (Comparison{Expected: expected, Observed: agreed}).disagreement(world); problem != "" {
		t.Fatal(problem)
	}
	other := netip.MustParseAddrPort("192.0.2.99:1")
	for name, change := range map[string]func(*Observation){
		"verdict":  func(o *Observation) { o.Verdict = Dropped },
		"place":    func(o *Observation) { o.At = Elsewhere },
		"port":     func(o *Observation) { o.Port = inbound },
		"local":    func(o *Observation) { o.LocalAddr = other },
		"original": func(o *Observation) { o.OriginalDst = netip.AddrPort{} },
		"peer":     func(o *Observation) { o.Peer = other },
		"answer":   func(o *Observation) { o.Answered = false },
	} {
		observed := agreed
		change(&observed)
		if (Comparison{Expected: expected, Observed: observed}).disagreement(world) == "" {
			t.Errorf("%s: nobody minds that it differs", name)
		}
	}
}

// TestEveryFailureCounts has observations that contradict the trace of a packet that does not
// arrive.
func TestEveryFailureCounts(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	world, err := pod.World(nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := Observation{Verdict: Refused, Err: syscall.ECONNREFUSED}
	unroutable := Observation{Verdict: Refused, Err: syscall.EINVAL}
	accepted := Observation{Verdict: Accepted, Answered: true}
	dropped := Observation{Verdict: Dropped}
	from := func(p trace.Packet, src string) trace.Packet {
		p.Src = netip.AddrPortFrom(netip.MustParseAddr(src), 0)
		return p
	}
	for name, test := range map[string]struct {
		packet  trace.Packet
		agreed  Observation
		against []Observation
	}{
		"nobody listens":       {out("127.0.0.1:81"), refused, []Observation{dropped, accepted, unroutable}},
		"a reset that is lost": {from(out("[fd00:10:244:1::a]:81"), "::1"), dropped, []Observation{refused, accepted, unroutable}},
		"loopback on the wire": {from(out("198.51.100.7:80"), "127.0.0.1"), unroutable, []Observation{dropped, accepted, refused}},
		"a source of somebody's": {trace.Packet{
			From: trace.Socket{Transparent: true}, Protocol: interception.ProtocolTCP,
			Src: netip.MustParseAddrPort("203.0.113.9:40000"), Dst: netip.MustParseAddrPort("10.244.1.10:8080"),
		}, dropped, []Observation{refused, accepted, unroutable}},
	} {
		expected, err := pod.conversation(world, test.packet)
		if err != nil {
			t.Fatal(err)
		}
		if problem := (Comparison{Expected: expected, Observed: test.agreed}).disagreement(world); problem != "" {
			t.Errorf("%s: %s: %s", name, test.agreed, problem)
		}
		for _, observed := range test.against {
			if (Comparison{Expected: expected, Observed: observed}).disagreement(world) == "" {
				t.Errorf("%s: nobody minds that it was %s", name, observed)
			}
		}
		c, err := pod.Compare(t.Context(), world, test.packet)
		if err != nil || c.Disagreement != "" {
			t.Errorf("%s: %s, %v", name, c.Report(), err)
		}
	}
}
