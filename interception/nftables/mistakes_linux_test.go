// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// These are the situations of trace's TestWhatOthersGotWrong that need a kernel.

// redirecting is a plan whose rules have an order that matters.
func redirecting(t testing.TB) *interception.Plan {
	t.Helper()
	return build(t, "mesh-test", func(b *interception.Builder) {
		c := b.NAT("output")
		c.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		c.Do("exclude.port", interception.Match{L4: interception.TCP().To(interception.Ports(22))}, interception.Return{}, "an excluded port")
		c.Do("capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "all others")
	})
}

// TestAppliedOverDamage applies the plan over the remains of it that another program's edits have
// left: every rule is in place, once, and in order.
func TestAppliedOverDamage(t *testing.T) {
	t.Parallel()
	const chain = "inet mesh-test nat-output "
	for name, damage := range map[string]func(handle func(comment string) string) string{
		"nothing": func(func(string) string) string { return "" },
		"a rule is gone": func(handle func(string) string) string {
			return "delete rule " + chain + "handle " + handle("exclude.port")
		},
		"the chain is empty": func(func(string) string) string { return "flush chain " + chain },
		"two are swapped": func(handle func(string) string) string {
			return "delete rule " + chain + "handle " + handle("exclude.port") + "\nadd rule " + chain + "tcp dport 22 return"
		},
		"a rule is there twice": func(func(string) string) string {
			return "insert rule " + chain + "meta l4proto tcp redirect to :15001"
		},
		"the hook is gone": func(func(string) string) string { return "delete chain inet mesh-test hook.nat.output" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, plan := newPod(t), redirecting(t)
			ns.apply(t, plan)
			want := ns.ruleset(t)
			ns.load(t, damage(func(comment string) string {
				found := regexp.MustCompile(`comment "` + comment + ` .*# handle (\d+)`).FindStringSubmatch(ns.nft(t, "", "-a", "list", "ruleset"))
				if found == nil {
					t.Fatalf("no rule %s", comment)
				}
				return found[1]
			}))
			ns.apply(t, plan)
			if diff := cmp.Diff(want, ns.ruleset(t)); diff != "" {
				t.Errorf("not as applied (-want +got):\n%s", diff)
			}
		})
	}
}

// TestIPv6Disabled has a pod ask for IPv6 networks on a kernel with IPv6 off: the plan is for IPv4.
func TestIPv6Disabled(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	for _, of := range []string{"all", "default", "lo"} {
		ns.setSysctl(t, "ipv6/conf/"+of+"/disable_ipv6", "1")
	}
	facts, err := netfacts.Read(ns.Netns)
	if err != nil {
		t.Fatal(err)
	}
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{Annotations: map[string]string{
		"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8,fd00::/8",
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.1.0.0/16,fd01::/16",
	}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := sidecar.Plan(redirect, facts, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	ns.apply(t, plan)
	if rules := ns.ruleset(t); strings.Contains(rules, "ip6") || strings.Contains(rules, "fd00") || !strings.Contains(rules, "10.0.0.0/8") {
		t.Errorf("want rules of IPv4 alone:\n%s", rules)
	}
}

// TestSamePriority has another owner's table translate at the same hook with the same priority. The
// table added last decides first, and the first translation counts.
func TestSamePriority(t *testing.T) {
	t.Parallel()
	for _, foreignLast := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreign last %t", foreignLast), func(t *testing.T) {
			t.Parallel()
			ns := newPod(t)
			foreign := func() {
				ns.load(t, "table ip foreign { chain c { type nat hook output priority -100; meta l4proto tcp redirect to :9999; }; }")
			}
			if !foreignLast {
				foreign()
			}
			ns.apply(t, redirecting(t))
			if foreignLast {
				foreign()
			}
			want := map[bool]string{false: "15001", true: "9999"}[foreignLast]
			if got := ns.connected(t, "15001", "9999"); got != want {
				t.Errorf("connected to %s, want %s", got, want)
			}
		})
	}
}

// connected returns the port of loopback that a connection to another port reaches.
func (p *pod) connected(t testing.TB, ports ...string) string {
	t.Helper()
	accepted := make(chan string, 1)
	if err := p.Namespace.Do(func() error {
		for _, port := range ports {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:"+port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				if c, err := l.Accept(); err == nil {
					accepted <- port
					_ = c.Close()
				}
			}()
		}
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", "127.0.0.1:80")
		if err != nil {
			return err
		}
		return c.Close()
	}); err != nil {
		t.Fatal(err)
	}
	return <-accepted
}
