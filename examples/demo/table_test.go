// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

func testTable() table {
	outside, own := netip.MustParseAddrPort("203.0.113.10:80"), netip.MustParseAddrPort("[fd00::2]:8080")
	captured := expectation{
		ending: ending{listener: "proxy:15001", original: outside},
		rule:   "outbound.capture", why: "all other connections go to the proxy",
		from: []interception.Source{
			{Kind: interception.SourceDefault, Key: "unseen", Value: "*"},
			{Kind: interception.SourceAnnotation, Key: "example.com/include", Value: "*"},
			{Kind: interception.SourceDialect, Key: "ports of the agent", Value: "15020"},
		},
	}
	direct := expectation{ending: ending{listener: "world:80", original: outside}}
	return table{
		{probe: probe{from: application, what: "the world", destination: outside}, want: captured, got: captured.ending},
		{probe: probe{from: proxy, what: "the world", destination: outside}, want: direct, skipped: "needs a second uid"},
		{probe: probe{from: world, what: "application", destination: own}, want: expectation{ending: ending{failure: refused}}, got: direct.ending},
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	testTable().write(&text)
	want := `  CONNECTION               TO               TRACE EXPECTS  THE KERNEL DID
  application → the world  203.0.113.10:80  proxy:15001    proxy:15001, meant for 203.0.113.10:80  ✓ agree
      outbound.capture: all other connections go to the proxy (include="*") (ports of the agent="15020")
  proxy → the world        203.0.113.10:80  world:80       -                                       needs a second uid
      no rule decides
  world → application      [fd00::2]:8080   refused        world:80, meant for 203.0.113.10:80     ✗ DISAGREE
      no rule decides
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if got, want := testTable().summary(), "3 connections: 1 as expected, 1 NOT, 1 not made (taken from the trace alone)"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	if rows := testTable().disagreements(); len(rows) != 1 || rows[0].probe.from != world {
		t.Errorf("disagreements are %v, want the world's", rows)
	}
}

// A group of rows begins with its name, and in ambient mode a row has the proxies and the client
// that the listener sees. What is expected of the client is shown if it differs.
func TestTableOfAmbientMode(t *testing.T) {
	t.Parallel()
	from := func(address string) ending {
		return ending{listener: "stock:8080", proxies: "15001 → 15008", client: netip.MustParseAddr(address)}
	}
	p := meshProbe(orders, "stock", netip.MustParseAddr("10.244.1.4"), 8080)
	direct := ending{listener: "stock:8080", client: netip.MustParseAddr("10.244.1.3")}
	all := table{
		{group: "a pod", probe: p, want: expectation{ending: from("10.244.1.3")}, got: from("10.244.1.3")},
		{group: "a pod", probe: p, want: expectation{ending: from("10.244.1.3")}, got: from("10.244.1.9")},
		{group: "another pod", probe: p, want: expectation{ending: from("10.244.1.3")}, got: direct},
		{group: "another pod", probe: p, want: expectation{ending: direct}, got: ending{failure: refused}},
	}
	var text strings.Builder
	all.write(&text)
	want := `  CONNECTION      TO               TRACE EXPECTS                                THE KERNEL DID
  a pod:
  orders → stock  10.244.1.4:8080  15001 → 15008 → stock:8080                   15001 → 15008 → stock:8080, from 10.244.1.3  ✓ agree
      no rule decides
  orders → stock  10.244.1.4:8080  15001 → 15008 → stock:8080, from 10.244.1.3  15001 → 15008 → stock:8080, from 10.244.1.9  ✗ DISAGREE
      no rule decides
  another pod:
  orders → stock  10.244.1.4:8080  15001 → 15008 → stock:8080                   stock:8080, from 10.244.1.3                  ✗ DISAGREE
      no rule decides
  orders → stock  10.244.1.4:8080  stock:8080, from 10.244.1.3                  refused                                      ✗ DISAGREE
      no rule decides
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if rows := all.disagreements(); len(rows) != 3 {
		t.Errorf("%d rows disagree, want 3", len(rows))
	}
}

// A captured connection without an answer is wrong, even if the trace expects it.
func TestCapturedAndNotAnswered(t *testing.T) {
	t.Parallel()
	for _, failure := range []string{refused, unanswered} {
		r := row{want: expectation{ending: ending{failure: failure}, captured: true}, got: ending{failure: failure}}
		if r.agrees() || !strings.Contains(r.verdict(), "NOT ANSWERED") || len(table{r}.disagreements()) != 1 {
			t.Errorf("%s: %s", failure, r.verdict())
		}
		if r.want.captured = false; !r.agrees() {
			t.Errorf("%s of a connection that is not captured: %s", failure, r.verdict())
		}
	}
}

func TestEqualEndingsAgree(t *testing.T) {
	t.Parallel()
	want := ending{listener: "proxy:15001", original: netip.MustParseAddrPort("203.0.113.10:80")}
	for name, got := range map[string]ending{
		"another listener":             {listener: "proxy:15006", original: want.original},
		"another original destination": {listener: want.listener, original: netip.MustParseAddrPort("127.0.0.1:15001")},
		"no listener":                  {failure: refused},
	} {
		if r := (row{want: expectation{ending: want}, got: got}); r.agrees() {
			t.Errorf("%s agrees with %s", name, want)
		}
	}
	if r := (row{want: expectation{ending: want}, got: want}); !r.agrees() {
		t.Error("an ending doesn't agree with itself")
	}
	if r := (row{skipped: "needs a second uid"}); r.agrees() {
		t.Error("a connection that was not made agrees")
	}
}

func TestEndingOfOutcome(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddrPort("203.0.113.10:80")
	for _, test := range []struct {
		name    string
		outcome trace.Outcome
		want    ending
	}{
		{
			"delivered",
			trace.Outcome{Verdict: trace.Delivered, Listener: trace.Listener{Name: "proxy:15001"}, OriginalDst: to},
			ending{listener: "proxy:15001", original: to},
		},
		{"sent", trace.Outcome{Verdict: trace.Sent, Header: trace.Header{Dst: to}}, ending{listener: "world:80", original: to}},
		{"refused", trace.Outcome{Verdict: trace.Refused}, ending{failure: refused}},
		{"dropped", trace.Outcome{Verdict: trace.Dropped}, ending{failure: unanswered}},
		{
			"no route at a socket",
			trace.Outcome{Verdict: trace.Unroutable, Cause: trace.NoRoute, Packet: trace.Packet{From: trace.Socket{}}},
			ending{failure: unroutable},
		},
		{
			"martian",
			trace.Outcome{Verdict: trace.Unroutable, Cause: trace.Martian, Packet: trace.Packet{From: trace.Arrival{}}},
			ending{failure: unanswered},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := endingOf(test.outcome); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
