// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
)

func explained[R proof.Rules](t *testing.T, rules R, query string) proof.Explanation {
	t.Helper()
	q, err := proof.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	x, err := proof.Explain(rules, q, proof.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Each region's example ends as the region predicts, by the rule that it names.
func TestExplainAgreesWithTrace(t *testing.T) {
	t.Parallel()
	for name, plan := range goldenPlans(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := explained(t, plan, "")
			for _, r := range x.Regions {
				step, decided := r.Outcome.Decisive()
				switch {
				case decided != (r.Decides != nil) || decided && step.Rule.ID != r.Decides.Rule.ID:
					t.Errorf("%s: the region's rule is %v\n%s", r.Example, r.Decides, r.Outcome.Report())
				case (r.Effect == proof.Dropped) != (r.Outcome.Verdict == trace.Dropped) && r.Effect != proof.Captured:
					t.Errorf("%s: %s, and it is %s", r.Example, r.Effect, r.Outcome)
				}
			}
			if rules := 0; len(x.Regions) > 0 {
				for range plan.Rules() {
					rules++
				}
				if len(x.Regions) > 2*rules+2 { // in and out, and the packets that no rule decides
					t.Errorf("%d regions for %d rules", len(x.Regions), rules)
				}
			}
		})
	}
}

func TestExplainQueries(t *testing.T) {
	t.Parallel()
	plans := goldenPlans(t)
	for _, c := range []struct{ plan, query, want string }{
		{"default", "tcp port 8443 in", `
DIRECTION  WHEN  EFFECT                        RULE                            WHY
in         tcp   captured: redirect to :15006  nat/inbound[2] inbound.capture  inbound connections go to the proxy
                                                                                 from default traffic.sidecar.istio.io/includeInboundPorts="*"
`},
		{"default", "udp", `
DIRECTION  WHEN           EFFECT      RULE  WHY
out        anything else  left alone  none  no rule decides
in         anything else  left alone  none  no rule decides
`},
		{"default", "out to 192.0.2.1 tcp port 443 uid 1000 gid 1000 v4", `
DIRECTION  WHEN  EFFECT                        RULE                             WHY
out        tcp   captured: redirect to :15001  nat/output[12] outbound.capture  all other connections go to the proxy
                                                                                  from default traffic.sidecar.istio.io/includeOutboundIPRanges="*"
`},
		{"tproxy", "in tcp port 8080 v4 to 10.244.0.2", `
DIRECTION  WHEN                     EFFECT                                 RULE                                 WHY
in         dst != 127.0.0.1/32 tcp  captured: tproxy to :15006 mark 0x539  mangle/inbound[8] tproxy.capture.v4  inbound connections go to the proxy
                                                                                                                  from default traffic.sidecar.istio.io/includeInboundPorts="*"
`},
		{"tproxy", "out uid 1337 tcp to 10.244.0.2 port 8080", `
DIRECTION  WHEN                              EFFECT                                 RULE                                   WHY
out        over lo: dst != 127.0.0.1/32 tcp  captured: tproxy to :15006 mark 0x539  mangle/inbound[8] tproxy.capture.v4    inbound connections go to the proxy
                                                                                                                             from default traffic.sidecar.istio.io/includeInboundPorts="*"
out        tcp and out lo src 127.0.0.6/32   left alone                             nat/output[1] outbound.passthrough.v4  the proxy hands a connection to the application
out        tcp and uid 1337                  left alone                             nat/output[8] outbound.proxy.uid       connections of the proxy itself are never captured
                                                                                                                             from default runAsUser="1337"
`},
		{"inbound-exclude-ports", "in tcp port 8080 from 192.0.2.9", `
DIRECTION  WHEN                                   EFFECT      RULE                                  WHY
in         tcp dport 3306,8080,15020-15021,15090  left alone  nat/inbound[1] inbound.exclude.ports  excluded inbound ports
                                                                                                      from annotation traffic.sidecar.istio.io/excludeInboundPorts=" 8080 ,3306"
                                                                                                      from dialect ports of agent, health and metrics="15020,15021,15090"
`},
		{"reroute-interface", "link eth0 tcp", `
DIRECTION  WHEN         EFFECT                        RULE                            WHY
in         in eth0 tcp  captured: redirect to :15001  nat/inbound[0] reroute.capture  connections of virtual machines go to the proxy
                                                                                        from annotation istio.io/reroute-virtual-interfaces="eth0"
`},
		{"default", "out link eth0", `
no packet is as the query asks
`},
	} {
		got := "\n" + explained(t, plans[c.plan], c.query).String()
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s\n%s", c.plan, c.query, diff, got)
		}
	}
}

// A misspelt link must not look like an answer: no packet would be as the query asks.
func TestExplainRefusesUnknownLinks(t *testing.T) {
	t.Parallel()
	plan := &interception.Plan{Owner: "test-mesh"}
	for _, link := range []interception.Interface{"eht0", "lo"} {
		_, err := proof.Explain(plan, proof.Query{Link: link}, proof.Options{})
		if !errors.Is(err, proof.ErrQuery) || !strings.Contains(err.Error(), strconv.Quote(string(link))) || !strings.Contains(err.Error(), "(eth0)") {
			t.Errorf("link %s: %v, want ErrQuery with the links that there are", link, err)
		}
	}
	if _, err := proof.Explain(plan, proof.Query{Link: "eth0"}, proof.Options{}); err != nil {
		t.Error(err)
	}
}

func TestANilPlanIsInvalid(t *testing.T) {
	t.Parallel()
	if _, err := proof.Explain[*interception.Plan](nil, proof.Query{}, proof.Options{}); !errors.Is(err, interception.ErrPlan) {
		t.Errorf("Explain = %v, want ErrPlan", err)
	}
}

func TestParseQuery(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"sideways":              `invalid query: "sideways": write in, out, tcp, udp, v4, v6, all, or one of port, from, to, uid, gid, link and a value`,
		"port":                  `invalid query: "port": write in, out, tcp, udp, v4, v6, all, or one of port, from, to, uid, gid, link and a value`,
		"colour red":            `invalid query: "colour red": "colour" is not a word of a query: write in, out, tcp, udp, v4, v6, all, port, from, to, uid, gid or link`,
		"port 65536":            `invalid query: "port 65536": "65536" is neither a port nor a range of ports: write decimal numbers from 0 to 65535, such as 80,8000-8999`,
		"port ,":                `invalid query: "port ,": `,
		"to example":            `invalid query: "to example": "example" is neither an address nor a prefix such as 10.0.0.0/8`,
		"tcp udp":               `invalid query: "tcp" and "udp": write one of them`,
		"in tcp out":            `invalid query: "in" and "out": write one of them`,
		"v4 v6":                 `invalid query: "v4" and "v6": write one of them`,
		"link a link b":         `invalid query: "link a" and "link b": write one of them`,
		"uid 1 uid 2":           `invalid query: "uid 1" and "uid 2": write one of them`,
		"gid 1 gid 2":           `invalid query: "gid 1" and "gid 2": write one of them`,
		"port 1 port 2":         `invalid query: "port 1" and "port 2": write one of them`,
		"to ::1 to ::2":         `invalid query: "to ::1" and "to ::2": write one of them`,
		"from ::1 tcp from ::2": `invalid query: "from ::1" and "from ::2": write one of them`,
		"from fe80::1%e":        `invalid query: "from fe80::1%e": "fe80::1%e" has a zone: leave it out`,
	} {
		if _, err := proof.ParseQuery(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	q, err := proof.ParseQuery(" out tcp v6 all port 80 from ::1 to 2001:db8::1/32 uid 1 gid 2 ")
	if err != nil || q.Direction != proof.Out || q.L4.Protocol() != interception.ProtocolTCP || q.Family != interception.IPv6 || !q.All ||
		q.Dst.Set().String() != "2001:db8::/32" || q.Src.Set().String() != "::1/128" || !q.UID.Set().Contains(1) || !q.GID.Set().Contains(2) {
		t.Errorf("%+v, %v", q, err)
	}
	q, err = proof.ParseQuery("port 80-90,443 uid 5-7")
	if ports := q.Ports.Set(); err != nil || ports.String() != "80-90,443" && ports.String() != "443,80-90" || !q.UID.Set().Contains(6) {
		t.Errorf("%+v, %v", q, err)
	}
}
