// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
)

// capture is a plan that sends connections to a port, with a test's additions.
func capture(t testing.TB, port interception.Port, more func(*interception.Builder)) *interception.Plan {
	t.Helper()
	return build(t, "mesh-test", func(b *interception.Builder) {
		c := b.NAT("output")
		c.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		c.Do("to.proxy", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: port}, "to the proxy")
		more(b)
	})
}

func nothingMore(*interception.Builder) {}

// unknownMatch makes programs refuse rules with some words, as if a module was missing.
func unknownMatch(words string) func(iptables.Command) iptables.Command {
	return func(c iptables.Command) iptables.Command {
		c.Stdin = []byte(strings.ReplaceAll(string(c.Stdin), words, "-m nosuchmatch "+words))
		return c
	}
}

// TestRefusals has a program refuse a rule: the error names it, and the rules are as they were.
func TestRefusals(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for name, before := range map[string]*interception.Plan{"fresh": nil, "replacing": capture(t, 15001, nothingMore)} {
			ns := newPod(t)
			if before != nil {
				if err := dataplane(t, iptables.Options{Flavour: flavour}).Apply(t.Context(), ns.Netns, before); err != nil {
					t.Fatal(err)
				}
			}
			rules := ns.rules(t)
			plan := capture(t, 15002, func(b *interception.Builder) {
				c := b.Mangle("output")
				c.Entry(interception.Output, interception.Match{}, "packets from the pod")
				c.Do("a.mark", interception.Match{}, interception.SetMark{Mark: interception.WholeMark(7)}, "a mark")
				f := b.Filter("output")
				f.Entry(interception.Output, interception.Match{}, "packets from the pod")
				f.Do("a.drop", interception.Match{L4: interception.UDP()}, interception.Drop{}, "no UDP")
			})
			dp := dataplane(t, iptables.Options{Flavour: flavour, Runner: changed{unknownMatch("-p udp")}})
			err := dp.Apply(t.Context(), ns.Netns, plan)
			var refused *interception.ApplyError
			if !errors.As(err, &refused) || refused.At != "a.drop" || refused.Why != "no UDP" || !errors.Is(err, interception.ErrUnsupported) ||
				!strings.Contains(err.Error(), "nosuchmatch") {
				t.Errorf("%s: got %v, want ErrUnsupported about a.drop", name, err)
			}
			if diff := cmp.Diff(rules, ns.rules(t)); diff != "" {
				t.Errorf("%s: not as it was (-before +after):\n%s", name, diff)
			}
		}
	})
}
