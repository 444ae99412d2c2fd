// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

func TestTable(t *testing.T) {
	t.Parallel()
	gateway := netip.MustParseAddr("10.0.0.1")
	plan := build(t, func(b *interception.Builder) {
		b.Link(interception.Link{ID: "a.dummy", Name: "mesh0", Why: "a link"})
		b.Link(interception.Link{ID: "a.tunnel", Name: "mesh1", Geneve: &interception.Geneve{VNI: 7, Remote: gateway, Port: 6081}, Why: "a tunnel"})
		b.Link(interception.Link{ID: "a.pair", Name: "in0", MTU: 1400, Veth: &interception.Veth{Peer: "in1", Namespace: "proxy"}, Why: "a pair"})
		b.Address(interception.Address{ID: "an.address", Device: "lo", Prefix: netip.MustParsePrefix("::6/128"), Why: "an address"})
		b.Sysctl(interception.Sysctl{ID: "a.sysctl", Key: "ipv4/conf/all/route_localnet", Value: 1, Why: "a sysctl"})
		b.Route(interception.Route{ID: "a.route", Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "mesh0", Gateway: gateway, Why: "a route"})
		b.Route(interception.Route{
			ID: "more", Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "in0", Gateway: gateway, OnLink: true, Source: gateway, Metric: 5, Why: "a route",
		})
		b.Route(interception.Route{ID: "none", Type: interception.RouteThrow, Destination: netip.MustParsePrefix("::/0"), Table: 7, Why: "a route"})
		b.PolicyRule(interception.PolicyRule{
			ID: "a.rule", Family: interception.IPv4, Mark: interception.WholeMark(1337), Table: 133, Priority: 9, Why: "a policy rule",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "goes", Family: interception.IPv4, Mark: interception.WholeMark(1), Goto: 32766, Priority: 8, Why: "a policy rule",
		})
		b.PolicyRule(interception.PolicyRule{ID: "any", Family: interception.IPv6, Any: true, Table: 133, Priority: 10, Why: "a policy rule"})
		b.Set("fixed", prefixes(t, "10.0.0.0/8"), "a set")
		b.LiveSet("live", interception.IPv6, "a live set")
		nat := b.NAT("output")
		nat.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "an entry")
		nat.Do("output.long", interception.Match{
			Dst: interception.Is(prefixes(t, "10.0.0.0/8,127.0.0.0/8,172.16.0.0/12,192.168.0.0/16,198.51.100.0/24")), L4: interception.TCP(),
		}, interception.Return{}, "a long list")
		nat.Do("output.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "the rest",
			interception.Source{Kind: interception.SourceAnnotation, Key: "a.b/c", Value: "text of a pod"})
		b.NAT("empty").Do("empty.rule", interception.Match{}, interception.Accept{}, "all")
		b.NAT("none")
	})
	for table := range plan.Tables() {
		table.Entries[0].Offset = -5
	}
	const want = `
  OBJECT      WHAT                                                      WHY
  a.dummy     link mesh0 type dummy                                     a link
  a.tunnel    link mesh1 type geneve id 7 remote 10.0.0.1 dstport 6081  a tunnel
  a.pair      link in0 mtu 1400 type veth peer name in1 netns proxy     a pair
  an.address  address ::6/128 dev lo                                    an address
  a.sysctl    sysctl net/ipv4/conf/all/route_localnet = 1               a sysctl
  a.route     route unicast 10.0.0.0/8 via 10.0.0.1 dev mesh0 table     a route
              main
  more        route unicast 10.0.0.0/8 via 10.0.0.1 dev in0 onlink      a route
              src 10.0.0.1 metric 5 table main
  none        route throw ::/0 table 7                                  a route
  a.rule      rule v4 from all fwmark 0x539 lookup 133 priority 9       a policy rule
  goes        rule v4 from all fwmark 0x1 goto 32766 priority 8         a policy rule
  any         rule v6 from all lookup 133 priority 10                   a policy rule
  @fixed      set of v4: 10.0.0.0/8                                     a set
  @live       live set of v6                                            a live set

nat, hook output
  ENTRY              MATCH  ACTION                     WHY
  nat.output.output  tcp    jump output (priority -5)  an entry

nat, chain output
  RULE            MATCH                                                     ACTION              WHY
  output.long     dst 10.0.0.0/8,127.0.0.0/8,172.16.0.0/12,192.168.0.0/16,  return              a long list
                  198.51.100.0/24 tcp
  output.capture  tcp                                                       redirect to :15001  the rest

nat, chain empty
  RULE        MATCH  ACTION  WHY
  empty.rule  any    accept  all

nat, chain none
  no rules
`
	got := render.Table(plan)
	if _, rest, _ := strings.Cut(got, "\n"); cmp.Diff(want, rest) != "" {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, rest))
	}
	if !strings.HasPrefix(got, "plan mesh-test, fingerprint "+plan.Fingerprint()+"\n") || got != render.Table(plan) {
		t.Errorf("the first line is wrong, or the second text another:\n%s", got)
	}
}
