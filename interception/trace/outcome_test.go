// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

func TestReport(t *testing.T) {
	t.Parallel()
	from := interception.Source{Kind: interception.SourceAnnotation, Key: "example.com/ports", Value: "*"}
	plan := build(t, func(b *interception.Builder) {
		nat, call, filter := b.NAT("output"), b.NAT("call"), b.Filter("filter")
		nat.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "from the pod")
		nat.Call("output.call", interception.Match{}, call, "to the called chain")
		call.Do("call.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "to the proxy", from)
		filter.Entry(interception.Output, interception.Match{}, "leaving the pod")
		filter.Entry(interception.Input, interception.Match{}, "what comes in")
		filter.Do("filter.accept", interception.Match{}, interception.Accept{}, "all is well")
	})
	const want = `tcp uid 1000 gid 1000 10.244.0.2:32768 > 192.0.2.1:80
  pod output out eth0
    test-plan nat: tcp -> jump output  # nat.output.output: from the pod
    test-plan nat/output: any -> jump call  # output.call: to the called chain
    test-plan nat/call: tcp -> redirect to :15001  # call.capture: to the proxy
      from annotation example.com/ports="*"
      now 10.244.0.2:32768 > 127.0.0.1:15001
    test-plan filter: any -> jump filter  # filter.output.filter: leaving the pod
    test-plan filter/filter: any -> accept  # filter.accept: all is well
  pod input in lo
    test-plan filter: any -> jump filter  # filter.input.filter: what comes in
    test-plan filter/filter: any -> accept  # filter.accept: all is well
delivered to outbound (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; call.capture: to the proxy
`
	outcome := traced(t, pod(plan), connect(application, "192.0.2.1:80"))
	if got := outcome.Report(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	const arrived = `tcp in eth0 10.244.0.9:40000 > 10.244.0.2:80
  pod input in eth0
    test-plan filter: any -> jump filter  # filter.input.filter: what comes in
    test-plan filter/filter: any -> accept  # filter.accept: all is well
refused: nothing listens at 10.244.0.2:80; filter.accept: all is well
`
	if got := traced(t, pod(plan), arriving("10.244.0.9:40000", "10.244.0.2:80")).Report(); got != arrived {
		t.Errorf("got:\n%s\nwant:\n%s", got, arrived)
	}
}

// A rule that decides on the destination explains the outcome better than one that lets the packet
// pass elsewhere.
func TestDecisive(t *testing.T) {
	t.Parallel()
	passing := func(b *interception.Builder) {
		raw, filter := b.Raw("raw"), b.Filter("filter")
		raw.Entry(interception.Output, interception.Match{}, "why")
		raw.Do("raw.return", interception.Match{}, interception.Return{}, "why")
		filter.Entry(interception.Output, interception.Match{}, "why")
		filter.Do("filter.accept", interception.Match{}, interception.Accept{}, "why")
	}
	nat := func(b *interception.Builder) {
		passing(b)
		chain := b.NAT("nat")
		chain.Entry(interception.Output, interception.Match{}, "why")
		chain.Do("nat.proxy", interception.Match{UID: interception.Is(interception.UIDs(proxy))}, interception.Return{}, "why")
		chain.Do("nat.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "why")
	}
	for _, c := range []struct {
		fill func(*interception.Builder)
		uid  interception.UID
		want interception.RuleID
	}{
		{nat, application, "nat.capture"},
		{nat, proxy, "nat.proxy"},
		{passing, application, "filter.accept"},
		{func(b *interception.Builder) {
			b.Raw("raw").Entry(interception.Output, interception.Match{}, "why")
		}, application, ""},
		{func(b *interception.Builder) {
			nat(b)
			mangle := b.Mangle("mangle")
			mangle.Entry(interception.Input, interception.Match{}, "why")
			mangle.Do("mangle.drop", interception.Match{}, interception.Drop{}, "why")
		}, application, "mangle.drop"},
	} {
		step, ok := traced(t, pod(build(t, c.fill)), connect(c.uid, "192.0.2.1:80")).Decisive()
		if step.Rule.ID != c.want || ok != (c.want != "") {
			t.Errorf("uid %d: got %q, want %q", c.uid, step.Rule.ID, c.want)
		}
	}
}

func TestZeroOutcome(t *testing.T) {
	t.Parallel()
	if got := (trace.Outcome{}).String(); got != "no verdict; no rule decided" {
		t.Errorf("got %q", got)
	}
	if got := (trace.Outcome{Verdict: trace.Dropped}).String(); got != "dropped on the way to invalid AddrPort; no rule decided" {
		t.Errorf("got %q", got)
	}
	if got := trace.Verdict(9).String(); got != "no verdict" {
		t.Errorf("got %q", got)
	}
	if got := trace.Cause(99).String(); got != "no cause" {
		t.Errorf("got %q", got)
	}
	for verdict, want := range map[trace.Verdict]string{
		trace.Delivered: "delivered", trace.Refused: "refused", trace.Sent: "sent", trace.Dropped: "dropped", trace.Unroutable: "unroutable",
	} {
		if got := verdict.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
