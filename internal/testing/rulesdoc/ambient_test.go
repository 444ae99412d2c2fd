// SPDX-License-Identifier: Apache-2.0

package rulesdoc

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// ambientPath is the path of the page about ambient mode.
const ambientPath = "../../../docs/ambient-rules.md"

// ambientHead begins the page.
const ambientHead = `# Rules of ambient mode

<!-- Made by go test ./internal/testing/rulesdoc -update; do not edit. -->

This page lists every rule and every other object that package ` + "`ambient`" + ` puts into the network
namespaces of a pod (` + "`PodPlan`" + `) and of the node (` + "`HostPlan`" + `): when it exists, an example of what
it matches and does, and what it is for. Where pods are captured on the node instead, the namespaces
are those of the node (` + "`NodePlan`" + `) and of the proxy (` + "`ProxyPlan`" + `). Marks, tables, priorities and
names are those of the program node-ambient: in pods Istio's (` + "`IstioNumbers`" + `), for capture on the
node others (` + "`BesideIstioNodeNumbers`" + `). The conditions come from the planners' answers, and a test
asks again.

Each chain begins with the jump from its hook. Then the rules follow in the order in which they
decide. The documentation of the functions says in words what they do together. [Rules](rules.md)
lists those of sidecars, and says how to find a rule in the kernel by its id.

Conditions of a pod's rules name annotations of the pod. Without them all connections are captured
in both directions, and queries if the node's agent is set so.
`

func TestAmbientFresh(t *testing.T) {
	t.Parallel()
	text, err := ambientDocument()
	if err != nil {
		t.Fatal(err)
	}
	fresh(t, ambientPath, text)
}

// ambientDocument returns docs/ambient-rules.md.
func ambientDocument() ([]byte, error) {
	w := &writer{}
	w.line("%s", ambientHead)
	for _, of := range []struct {
		title   string
		planner *planner
	}{
		{"In a pod", podPlanner()},
		{"On the node", hostPlanner()},
		{"On the node, for capture there", nodePlanner()},
		{"In the pod of the proxy, for capture on the node", proxyPlanner()},
	} {
		w.document = &document{planner: of.planner, points: of.planner.near()}
		w.line("## %s\n", of.title)
		if err := w.ambientTables(); err != nil {
			return nil, fmt.Errorf("%s: %w", of.title, err)
		}
	}
	return []byte(wrapped(strings.TrimRight(w.String(), "\n") + "\n")), nil
}

// ambientTables writes a table for each chain, and one for what is beside the rules.
func (w *writer) ambientTables() (err error) {
	if w.order, err = w.ordered(); err != nil {
		return err
	}
	rows := map[string][]string{}
	var titles []string
	for _, id := range w.order {
		phrases, err := w.phrases(id)
		if err != nil {
			return err
		}
		at := w.nearest(w.points[slices.IndexFunc(w.points, func(at sample.Point) bool { return w.ask(at).has(id) })], id)
		x := w.part(at, id)
		title := chapter(x.place)
		if !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
		when := cmp.Or(strings.Join(phrases, "; "), "always")
		rows[title] = append(rows[title], fmt.Sprintf("| `%s` | %s | `%s` | %s |", id, when, ambientText(x), x.why))
	}
	for _, title := range titles {
		w.line("### %s\n\n| id | when | what | why |\n|---|---|---|---|\n%s\n", title, strings.Join(rows[title], "\n"))
	}
	return nil
}

// ambientText returns what a part is.
func ambientText(x part) string {
	text := x.text()
	switch {
	case x.place.kind == "entry":
		return "hook " + x.place.hook.String() + ": " + text
	case text == "":
		return "a live set"
	}
	return shortened(text)
}

// near returns the points with a plan that differ in at most two parameters from the default, and
// many random ones.
func (p *planner) near() []sample.Point {
	points := []sample.Point{make(sample.Point, len(p.Parameters))}
	for _, near := range p.neighbours(points[0]) {
		points = append(append(points, near), p.neighbours(near)...)
	}
	r := rand.New(rand.NewPCG(1, 0))
	for range sampled {
		at := make(sample.Point, len(p.Parameters))
		for i, parameter := range p.Parameters {
			at[i] = r.IntN(len(parameter.Values))
		}
		points = append(points, at)
	}
	slices.SortStableFunc(points, slices.Compare)
	points = slices.CompactFunc(points, slices.Equal)
	return slices.DeleteFunc(points, func(at sample.Point) bool { return !p.ask(at).valid })
}

// parameter returns one whose values are named by their texts.
func parameter(field string, values ...string) sample.Parameter {
	p := sample.Parameter{Field: field}
	for _, value := range values {
		p.Values = append(p.Values, sample.Value{Name: value})
	}
	return p
}

// tenPrefixes names a list that is long enough to become a set.
const tenPrefixes = "ten prefixes of each family"

// prefixes returns the parameter of a list of prefixes, with these values and those of each family.
func prefixes(field string, others ...string) sample.Parameter {
	p := parameter(field, append(others, "10.0.0.0/8", "2001:db8::/32", tenPrefixes)...)
	p.Kinds = []sample.Kind{
		{Phrase: "has IPv4 prefixes", Values: []string{"10.0.0.0/8", tenPrefixes}},
		{Phrase: "has IPv6 prefixes", Values: []string{"2001:db8::/32", tenPrefixes}},
	}
	return p
}

// podPlanner asks ambient.PodPlan. All parameters but the facts are annotations.
func podPlanner() *planner {
	parameters := []sample.Parameter{
		parameter("Facts.IPv6", "true", "false"),
		parameter("Facts.LoopbackIPv6", "true", "false"),
		parameter("ambient.istio.io/bypass-inbound-capture", "false", "true"),
		parameter("ambient.istio.io/dns-capture", "false", "true"),
		parameter("istio.io/reroute-virtual-interfaces", sample.Empty, "tap0"),
		parameter("traffic.istio.io/excludeInterfaces", sample.Empty, "net1"),
		parameter("traffic.istio.io/includeInboundPorts", "*", sample.Empty, "8080"),
		parameter("traffic.istio.io/excludeInboundPorts", sample.Empty, "9090"),
		parameter("traffic.istio.io/includeOutboundPorts", sample.Empty, "8080"),
		parameter("traffic.istio.io/excludeOutboundPorts", sample.Empty, "9090", "53"),
		prefixes("traffic.istio.io/includeOutboundIPRanges", "*", sample.Empty),
		prefixes("traffic.istio.io/excludeOutboundIPRanges", sample.Empty),
	}
	p := &planner{Space: sample.Space{Parameters: parameters}, known: map[string]answer{}}
	p.makePlan = func(at sample.Point) *interception.Plan {
		annotations := map[string]string{}
		for i, parameter := range parameters[2:] {
			annotations[parameter.Field] = annotation(parameter.Values[at[i+2]].Name)
		}
		overrides, _, err := ambient.Istio().Parse(interception.Pod{Annotations: annotations}, ambient.DefaultOverrides(false))
		if err != nil {
			panic(err) // a value above is wrong
		}
		facts := interception.Facts{IPv6: at[0] == 0, LoopbackIPv6: at[0] == 0 && at[1] == 0}
		return must(ambient.PodPlan(overrides, ambient.IstioNumbers(), facts, "istio-ambient"))
	}
	return p
}

// annotation returns the text of a value.
func annotation(name string) string {
	switch name {
	case sample.Empty:
		return ""
	case tenPrefixes:
		var all []string
		for i := range 10 {
			all = append(all, fmt.Sprintf("10.%d.0.0/16,2001:db8:%d::/48", 2*i, 2*i))
		}
		return strings.Join(all, ",")
	}
	return name
}

// hostPlanner asks ambient.HostPlan.
func hostPlanner() *planner {
	parameters := []sample.Parameter{
		parameter("Facts.IPv6", "true", "false"),
		parameter("Numbers.Probes", "of both families", "of IPv4 only", "of IPv6 only"),
		parameter("branches", sample.Empty, "one of each family"),
	}
	parameters[1].Kinds = []sample.Kind{
		{Phrase: "has an IPv4 address", Values: []string{"of both families", "of IPv4 only"}},
		{Phrase: "has an IPv6 address", Values: []string{"of both families", "of IPv6 only"}},
	}
	p := &planner{Space: sample.Space{Parameters: parameters}, known: map[string]answer{}}
	p.makePlan = func(at sample.Point) *interception.Plan {
		numbers := ambient.IstioNumbers()
		if at[1] > 0 {
			numbers.Probes = numbers.Probes[at[1]-1 : at[1]]
		}
		var branches []ambient.Branch
		for _, pod := range []string{"10.0.3.7", "2001:db8::7"}[:2*at[2]] {
			branches = append(branches, ambient.Branch{Pod: netip.MustParseAddr(pod), Link: "vlan1a2b3c", Table: 101, Priority: 10})
		}
		return must(ambient.HostPlan(numbers, interception.Facts{IPv6: at[0] == 0}, "istio-ambient", branches...))
	}
	return p
}

// nodeParameters are those of capture on the node.
func nodeParameters(addresses ...string) []sample.Parameter {
	parameters := []sample.Parameter{
		parameter("Facts.IPv6", "true", "false"),
		parameter("NodeProxy.Addresses", append([]string{"of both families", "of IPv4 only", "of IPv6 only"}, addresses...)...),
		parameter("NodeProxy.Way", "WayVeth", "WayVXLAN"),
		parameter("NodeProxy.DNS", "false", "true"),
	}
	parameters[1].Kinds = []sample.Kind{
		{Phrase: "is not empty", Values: []string{"of both families", "of IPv4 only", "of IPv6 only"}},
		{Phrase: "has an IPv4 address", Values: []string{"of both families", "of IPv4 only"}},
		{Phrase: "has an IPv6 address", Values: []string{"of both families", "of IPv6 only"}},
	}
	return parameters
}

// nodeProxy returns the facts and the proxy of a point.
func nodeProxy(at sample.Point) (ambient.NodeProxy, interception.Facts) {
	facts := interception.Facts{IPv6: at[0] == 0, LoopbackIPv6: at[0] == 0}
	addresses := []netip.Addr{netip.MustParseAddr("10.244.0.14"), netip.MustParseAddr("fd00:10:244::e")}
	nodes := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	proxy := ambient.NodeProxy{Addresses: addresses, Node: nodes[0], Way: ambient.Way(at[2]), Namespace: "proxy", DNS: at[3] == 1}
	switch at[1] {
	case 1, 2:
		proxy.Addresses, proxy.Node = addresses[at[1]-1:at[1]], nodes[at[1]-1]
	case 3:
		proxy = ambient.NodeProxy{}
	}
	return proxy, facts
}

// nodePlanner asks ambient.NodePlan.
func nodePlanner() *planner {
	p := &planner{Space: sample.Space{Parameters: nodeParameters(sample.Empty)}, known: map[string]answer{}}
	p.makePlan = func(at sample.Point) *interception.Plan {
		proxy, facts := nodeProxy(at)
		return must(ambient.NodePlan(proxy, ambient.BesideIstioNodeNumbers(), facts, "istio-ambient"))
	}
	return p
}

// proxyPlanner asks ambient.ProxyPlan, which refuses a proxy without an address of the facts'
// families.
func proxyPlanner() *planner {
	p := &planner{Space: sample.Space{Parameters: nodeParameters()}, known: map[string]answer{}}
	p.makePlan = func(at sample.Point) *interception.Plan {
		proxy, facts := nodeProxy(at)
		if !facts.IPv6 && at[1] == 2 {
			return nil
		}
		return must(ambient.ProxyPlan(proxy, ambient.BesideIstioNodeNumbers(), facts, "istio-ambient"))
	}
	return p
}

// must returns a plan. What the planners here ask for never contradicts itself.
func must(plan *interception.Plan, err error) *interception.Plan {
	if err != nil {
		panic(err)
	}
	return plan
}
