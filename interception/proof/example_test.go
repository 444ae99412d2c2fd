// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// capture returns a plan of a mesh whose proxy runs as user 2102. It does not capture the given
// prefixes.
func capture(excluded ...string) (*interception.Plan, error) {
	prefixes := make([]netip.Prefix, len(excluded))
	for i, prefix := range excluded {
		prefixes[i] = netip.MustParsePrefix(prefix)
	}
	return sidecar.Plan(sidecar.Redirect{
		Proxy: sidecar.Proxy{UIDs: interception.UIDs(2102), OutboundPort: 4140},
		Outbound: sidecar.Outbound{
			Include: interception.AllPrefixes(), Exclude: interception.Prefixes(prefixes...), ExcludePorts: interception.Ports(25),
		},
	}, interception.Facts{}, "my-mesh")
}

// Two plans that do the same, and two that do not.
func ExampleEquivalent() {
	before, err := capture("10.0.0.0/8")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, excluded := range [][]string{{"10.0.0.0/9", "10.128.0.0/9"}, {"10.0.0.0/9", "10.128.0.0/10"}} {
		after, err := capture(excluded...)
		if err != nil {
			fmt.Println(err)
			return
		}
		same, err := proof.Equivalent(before, after, proof.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(same)
	}
	// Output:
	// yes
	// no: tcp uid 1000 gid 1000 > 10.192.0.1:8080
	//   first: sent by eth0 to 10.192.0.1:8080; outbound.exclude.prefixes.v4: excluded destinations
	//   second: delivered to proxy-4140 (proxy) at 127.0.0.1:4140, originally 10.192.0.1:8080; outbound.capture: all other connections go to the proxy
}

// Which rules decide about connections to port 443?
func ExampleExplain() {
	plan, err := capture("10.0.0.0/8")
	if err != nil {
		fmt.Println(err)
		return
	}
	query, err := proof.ParseQuery("tcp port 443 out")
	if err != nil {
		fmt.Println(err)
		return
	}
	explanation, err := proof.Explain(plan, query, proof.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(explanation)
	// Output:
	// DIRECTION  WHEN                           EFFECT                       RULE                                        WHY
	// out        v4 tcp and out lo uid != 2102  left alone                   nat/output[1] outbound.local                what the application sends within the pod stays there
	// out        v4 tcp and uid 2102            left alone                   nat/output[2] outbound.proxy.uid            connections of the proxy itself are never captured
	// out        v4 tcp and dst 10.0.0.0/8      left alone                   nat/output[3] outbound.exclude.prefixes.v4  excluded destinations
	// out        v4 tcp                         captured: redirect to :4140  nat/output[4] outbound.capture              all other connections go to the proxy
	// out        anything else                  left alone                   none                                        no rule decides
}

// The rules between two plans, during an update or after a killed one, need not be those of either
// plan.
func ExampleCovers() {
	capture := func(more ...interception.Port) *interception.Plan {
		plan, err := sidecar.Plan(sidecar.Redirect{
			Proxy:   sidecar.Proxy{InboundPort: 4143},
			Inbound: sidecar.Inbound{Include: interception.Ports(append(more, 8080)...)},
		}, interception.Facts{}, "my-mesh")
		if err != nil {
			fmt.Println(err)
		}
		return plan
	}
	plans := []*interception.Plan{capture(80), capture(443)}
	for _, between := range []*interception.Plan{capture(), {Owner: "my-mesh"}} {
		coverage, err := proof.Covers(between, plans, proof.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(coverage)
	}
	// Output:
	// yes
	// no: tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080
	//   plan 1: delivered to proxy-4143 (proxy) at 10.244.0.2:4143, originally 10.244.0.2:8080; inbound.capture: inbound connections go to the proxy
	//   plan 2: delivered to proxy-4143 (proxy) at 10.244.0.2:4143, originally 10.244.0.2:8080; inbound.capture: inbound connections go to the proxy
	//   the rules: delivered to application at 10.244.0.2:8080; no rule decided
}

// A rule after one that matches everything.
func ExampleLint() {
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 4143}, "all go to the proxy")
		admin := interception.Match{L4: interception.TCP().To(interception.Ports(4191))}
		output.Do("admin", admin, interception.Return{}, "save those to its administration")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	findings, err := proof.Lint(plan, proof.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, finding := range findings {
		fmt.Println(finding)
	}
	// Output:
	// nat/output[1] admin (tcp dport 4191 -> return) never matches: capture (tcp -> redirect to :4143) decides before
}
