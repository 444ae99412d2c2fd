// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// TestSameRules compares the rules with those that Linkerd's plugin writes for the same pod.
func TestSameRules(t *testing.T) {
	t.Parallel()
	redirect, warnings, err := dialect().Parse(interception.Pod{Annotations: map[string]string{
		"config.linkerd.io/skip-inbound-ports": "25,8000-8999", "config.linkerd.io/skip-outbound-ports": "5432",
	}})
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	ours, err := sidecar.Plan(redirect, interception.Facts{IPv6: true}, owner)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := interception.Build("proxy-init", func(b *interception.Builder) {
		tcp, skipped := interception.TCP(), redirect.Inbound.Exclude
		in := b.NAT("redirect")
		in.Entry(interception.Prerouting, interception.Match{}, "all that comes in")
		in.Do("in.skip", interception.Match{L4: tcp.To(skipped)}, interception.Return{}, "skipped inbound")
		in.Do("in.all", interception.Match{L4: tcp}, interception.RedirectTo{Port: 4143}, "the rest")
		out := b.NAT("output")
		out.Entry(interception.Output, interception.Match{}, "all that leaves")
		out.Do("out.uid", interception.Match{UID: interception.Is(interception.UIDs(2102))}, interception.Return{}, "the proxy")
		out.Do("out.lo", interception.Match{Out: interception.Is(interception.Interfaces("lo"))}, interception.Return{}, "loopback")
		out.Do("out.skip", interception.Match{L4: tcp.To(interception.Ports(5432))}, interception.Return{}, "skipped outbound")
		out.Do("out.all", interception.Match{L4: tcp}, interception.RedirectTo{Port: 4140}, "the rest")
	})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := proof.Equivalent(theirs, ours, proof.Options{}); err != nil || same.Answer != proof.Yes {
		t.Error(same, err)
	}
}
