// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// walk is the way of a connection: where its first packet, the answer and a further packet end.
type walk struct {
	from, packet          string
	ends, answered, again string
}

// walks returns all ways that a connection can take over the node, for both families.
func walks() map[string]walk {
	all := map[string]walk{}
	for name, w := range map[string]walk{
		"outbound":                       {"node", "tcp in vetha 10.244.0.2:40000 > 198.51.100.7:443", "proxy outbound", "node vetha", "proxy outbound"},
		"to the same node":               {"node", "tcp in vetha 10.244.0.2:40000 > 10.244.0.6:8080", "proxy outbound", "node vetha", "proxy outbound"},
		"inbound":                        {"node", "tcp in eth0 198.51.100.7:40000 > 10.244.0.6:8080", "proxy inbound", "node eth0", "proxy inbound"},
		"inbound, tunnelled":             {"node", "tcp in eth0 198.51.100.7:40000 > 10.244.0.6:15008", "proxy tunnel", "node eth0", "proxy tunnel"},
		"from a pod that is not meshed":  {"node", "tcp in vethc 10.244.0.10:40000 > 10.244.0.6:8080", "proxy inbound", "node vethc", "proxy inbound"},
		"in a pod's name":                {"proxy", "tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 198.51.100.7:443", "node eth0", "proxy opener", "node eth0"},
		"in a pod's name, same node":     {"proxy", "tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 10.244.0.6:8080", "node vethb", "proxy opener", "node vethb"},
		"in a pod's name, to the node":   {"proxy", "tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 10.244.0.1:10250", "node kubelet", "proxy opener", "node kubelet"},
		"in a client's name":             {"proxy", "tcp uid 0 gid 0 transparent 198.51.100.7:50000 > 10.244.0.6:8080", "node vethb", "proxy opener", "node vethb"},
		"the proxy's own":                {"proxy", "tcp uid 0 gid 0 > 198.51.100.7:443", "node eth0", "proxy opener", "node eth0"},
		"the proxy's own to a pod":       {"proxy", "tcp uid 0 gid 0 > 10.244.0.6:8080", "node vethb", "proxy opener", "node vethb"},
		"the node to a pod":              {"node", "tcp uid 0 gid 0 > 10.244.0.6:8080", "node vethb", "node opener", "node vethb"},
		"a pod to the node":              {"node", "tcp in vetha 10.244.0.2:40000 > 192.0.2.1:10250", "node kubelet", "node vetha", "node kubelet"},
		"a query":                        {"node", "udp in vetha 10.244.0.2:40000 > 198.51.100.53:53", "proxy dns", "node vetha", "proxy dns"},
		"a query over TCP":               {"node", "tcp in vetha 10.244.0.2:40000 > 198.51.100.53:53", "proxy outbound", "node vetha", "proxy outbound"},
		"a query of another pod":         {"node", "udp in vethc 10.244.0.10:40000 > 198.51.100.53:53", "node eth0", "node vethc", "node eth0"},
		"other UDP":                      {"node", "udp in vetha 10.244.0.2:40000 > 198.51.100.7:443", "node eth0", "node vetha", "node eth0"},
		"UDP to a pod":                   {"node", "udp in eth0 198.51.100.7:40000 > 10.244.0.6:8080", "node vethb", "node eth0", "node vethb"},
		"of a pod that is not meshed":    {"node", "tcp in vethc 10.244.0.10:40000 > 198.51.100.7:443", "node eth0", "node vethc", "node eth0"},
		"to a pod that is not meshed":    {"node", "tcp in eth0 198.51.100.7:40000 > 10.244.0.10:8080", "node vethc", "node eth0", "node vethc"},
		"the node to the network":        {"node", "tcp uid 0 gid 0 > 198.51.100.7:443", "node eth0", "node opener", "node eth0"},
		"to the proxy's metrics":         {"node", "tcp in vethc 10.244.0.10:40000 > 10.244.0.14:15001", "proxy outbound", "node vethc", "proxy outbound"},
		"the proxy to a resolver":        {"proxy", "udp uid 0 gid 0 > 198.51.100.53:53", "node eth0", "proxy opener", "node eth0"},
		"the proxy to itself, loopback":  {"proxy", "tcp uid 0 gid 0 > 127.0.0.1:15001", "proxy outbound", "proxy opener", "proxy outbound"},
		"the proxy to its own address":   {"proxy", "tcp uid 0 gid 0 > 10.244.0.14:15001", "proxy outbound", "proxy opener", "proxy outbound"},
		"a tunnel to another node's pod": {"proxy", "tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 198.51.100.7:15008", "node eth0", "proxy opener", "node eth0"},
	} {
		all[name] = w
		w.packet = sixth(w.packet)
		all[name+", v6"] = w
	}
	return all
}

// sixth writes a packet of IPv4 with the addresses that its ends have in IPv6.
func sixth(line string) string {
	return strings.NewReplacer(
		"10.244.0.10:", "[fd00:10:244::a]:", "10.244.0.14:", "[fd00:10:244::e]:", "10.244.0.2:", "[fd00:10:244::2]:", "10.244.0.6:", "[fd00:10:244::6]:",
		"10.244.0.1:", "[fd00:10:244::1]:", "198.51.100.7:", "[2001:db8:7::7]:", "198.51.100.53:", "[2001:db8:7::53]:", "192.0.2.1:", "[2001:db8::1]:", "127.0.0.1:", "[::1]:",
	).Replace(line)
}

func TestNodeWalks(t *testing.T) {
	t.Parallel()
	for _, way := range []Way{WayVeth, WayVXLAN} {
		m := meshed()
		m.proxy.Way = way
		world := m.world(t)
		for name, w := range walks() {
			if complaint := w.strays(t, world); complaint != "" {
				t.Errorf("%s by %s: %s", name, way, complaint)
			}
		}
	}
}

// strays returns how a connection goes another way; "" if it does not.
func (w walk) strays(t *testing.T, world trace.World) string {
	t.Helper()
	c := converse(t, world)
	ends, first := c.line(w.from, w.packet)
	if ends != w.ends {
		return fmt.Sprintf("ends at %s, want %s\n%s", ends, w.ends, first.Report())
	}
	by := interception.Interface("vethz")
	if strings.Contains(w.packet, "transparent") {
		by = "istioout"
	}
	if from, is := first.Packet.From.(trace.Arrival); is && w.from == "proxy" && from.Link != by {
		return fmt.Sprintf("reaches the node by %s, want %s", from.Link, by)
	}
	answered, answer := c.answer(first)
	if answered != w.answered {
		return fmt.Sprintf("the answer ends at %s, want %s\n%s", answered, w.answered, answer.Report())
	}
	if from, is := first.Packet.From.(trace.Arrival); is && strings.HasPrefix(string(from.Link), "pistio") {
		if from, is := answer.Packet.From.(trace.Arrival); is && from.Link != "istioout" {
			return fmt.Sprintf("the answer reaches the node by %s", from.Link)
		}
	}
	again, further := c.repeat(w.from, w.packet)
	if strings.HasPrefix(w.packet, "tcp") && again != w.again {
		return fmt.Sprintf("a further packet ends at %s, want %s\n%s", again, w.again, further.Report())
	}
	return ""
}

// TestProxyLeavesOlderConnections has the capture of another program beside the plans, and the
// proxy serves both. What the proxy has opened before the plan was there, it sends as before, and
// all else by the wire. Without such a program, nothing is older: conntrack may have forgotten a
// connection.
func TestProxyLeavesOlderConnections(t *testing.T) {
	t.Parallel()
	beside, alone := meshed(), meshed()
	beside.numbers.Former.ProxyLink = "vethz"
	for _, test := range []struct {
		of    mesh
		flags string
		by    interception.Interface
	}{
		{beside, "flags ack", "vethz"},
		{beside, "flags fin,ack", "vethz"},
		{beside, "flags rst", "vethz"},
		{beside, "", "istioout"},
		{alone, "flags ack", "istioout"},
		{alone, "flags fin,ack", "istioout"},
	} {
		for _, to := range []string{"10.244.0.2:50000 > 198.51.100.7:443", "[fd00:10:244::2]:50000 > [2001:db8:7::7]:443"} {
			line := "tcp " + test.flags + " uid 0 gid 0 transparent " + to
			_, end := converse(t, test.of.world(t)).line("proxy", line)
			if from, is := end.Packet.From.(trace.Arrival); !is || from.Link != test.by {
				t.Errorf("%s reaches the node from %v, want %s\n%s", line, end.Packet.From, test.by, end.Report())
			}
		}
	}
	for _, w := range walks() {
		if w.from == "node" {
			if complaint := w.strays(t, beside.world(t)); complaint != "" {
				t.Errorf("beside another program: %s: %s", w.packet, complaint)
			}
		}
	}
}

// TestNodeNeedsEachRule takes each rule away: a connection then goes another way.
func TestNodeNeedsEachRule(t *testing.T) {
	t.Parallel()
	elsewhere := map[interception.RuleID]bool{
		// TestNodeFailsClosed and TestNodeRepliesNeverEscape
		"guard.outbound": true, "guard.inbound": true, "guard.reply": true,
		// TestNodeBesideOthers, in iptables
		"errors":      true,                        // TestProxyLearnsOfErrors
		"send.errors": true, "send.remember": true, // TestNodeCarriesMuch
		"proxy.zone":           true, // TestNodesTellEqualConnectionsApart
		"outbound.destination": true, "guard.captured": true,
		"captured.source.v4": true, "captured.source.v6": true, // TestNodeBesideMasquerading
		"outbound.wire": true, // TestNodeKnowsWhoseProxyOpened
	}
	for space := range 2 {
		for _, rule := range meshed().world(t).Namespaces[space].Plans[0].Rules() {
			world := meshed().world(t)
			world.Namespaces[space].Plans[0] = withoutRule(world.Namespaces[space].Plans[0], rule.ID)
			strays := false
			for _, w := range walks() {
				strays = strays || w.strays(t, world) != ""
			}
			if strays == elsewhere[rule.ID] {
				t.Errorf("without %s in %s: a connection goes another way: %v", rule.ID, world.Namespaces[space].Name, strays)
			}
		}
	}
}

// withoutRule returns a plan that lacks a rule.
func withoutRule(plan *interception.Plan, id interception.RuleID) *interception.Plan {
	rest := *plan
	rest.Objects = slices.Clone(plan.Objects)
	for i, object := range rest.Objects {
		if table, is := object.(interception.Table); is {
			table.Chains = slices.Clone(table.Chains)
			for j, chain := range table.Chains {
				table.Chains[j].Rules = slices.DeleteFunc(slices.Clone(chain.Rules), func(r interception.Rule) bool { return r.ID == id })
			}
			rest.Objects[i] = table
		}
	}
	return &rest
}

// TestNodeKeepsAddresses looks at what the proxy learns of a captured connection, and what those
// learn who take its own.
func TestNodeKeepsAddresses(t *testing.T) {
	t.Parallel()
	world := meshed().world(t)
	for name, w := range walks() {
		if strings.Contains(name, "query") && !strings.Contains(name, "TCP") {
			continue // translated to the proxy's address
		}
		opened, err := trace.ParsePacket(w.packet)
		if err != nil {
			t.Fatal(err)
		}
		c := converse(t, world)
		_, first := c.line(w.from, w.packet)
		if first.Header.Dst != opened.Dst || opened.Src.IsValid() && first.Header.Src != opened.Src {
			t.Errorf("%s: arrives as %s, want %s\n%s", name, first.Header, opened, first.Report())
		}
		if _, answer := c.answer(first); answer.Header.Src != opened.Dst {
			t.Errorf("%s: the answer comes from %s, want %s", name, answer.Header.Src, opened.Dst)
		}
	}
}

// TestNodeCapturesConnections has connections that began before their pod became a member, and
// others that go on after it is none any more.
func TestNodeCapturesConnections(t *testing.T) {
	t.Parallel()
	before := meshed()
	before.members = false
	for line, way := range map[string][2]string{
		"tcp in vetha 10.244.0.2:40000 > 198.51.100.7:443":  {"node eth0", "proxy outbound"},
		"tcp in eth0 198.51.100.7:40000 > 10.244.0.6:8080":  {"node vethb", "proxy inbound"},
		"tcp in vethc 10.244.0.10:40000 > 10.244.0.6:15008": {"node vethb", "proxy tunnel"},
	} {
		for _, line := range []string{line, sixth(line)} {
			for i, worlds := range [][]mesh{{before, meshed()}, {meshed(), before}} {
				c := converse(t, worlds[0].world(t))
				began, first := c.line("node", line)
				c.answer(first)
				c.world = worlds[1].world(t)
				if went, further := c.repeat("node", line); began != way[i] || went != way[i] {
					t.Errorf("%s: began at %s and goes on at %s, want %s\n%s", line, began, went, way[i], further.Report())
				}
			}
			c := converse(t, meshed().world(t))
			if went, unknown := c.repeat("node", line); went != way[0] {
				t.Errorf("%s: a connection that is older than connection tracking goes to %s, want %s\n%s", line, went, way[0], unknown.Report())
			}
		}
	}
}

// repeat sends a further packet of a connection.
func (c *conversation) repeat(namespace, line string) (string, trace.Outcome) {
	c.t.Helper()
	protocol, rest, _ := strings.Cut(line, " ")
	if protocol == "tcp" {
		protocol = "tcp flags ack"
	}
	return c.line(namespace, protocol+" "+rest)
}

// TestNodeKnowsWhoseProxyOpened has the proxy of an odd generation open connections in the names of
// others, while one of an even generation gets the new connections of pods: what answers goes to
// the proxy that asked, and the connections do not count as captured.
func TestNodeKnowsWhoseProxyOpened(t *testing.T) {
	t.Parallel()
	m := meshed()
	m.proxy.Generation = 1
	successor := NodeProxy{Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.18"), netip.MustParseAddr("fd00:10:244::12")}, Namespace: "second"}
	plan, err := NodePlan(successor, m.numbers, m.facts, "test-ambient", m.proxy)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 198.51.100.7:443", "tcp uid 0 gid 0 transparent 198.51.100.7:50000 > 10.244.0.6:8080",
		"tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 10.244.0.6:8080",
	} {
		for _, line := range []string{line, sixth(line)} {
			c := converse(t, m.world(t))
			c.world.Namespaces[0].Plans[0] = plan
			_, first := c.line("proxy", line)
			if mark := c.flows["node"][0].Mark; mark != m.numbers.Opened.Value|m.numbers.Odd.Value {
				t.Errorf("%s: the connection has the mark %#x\n%s", line, mark, first.Report())
			}
			if ends, answer := c.answer(first); ends != "proxy opener" {
				t.Errorf("%s: the answer ends at %s\n%s", line, ends, answer.Report())
			}
		}
	}
}

// TestNodeWithoutAFirstProxyKeepsAnother takes the first place from a proxy: what it has taken, and
// what it has opened in the names of others, goes on, and new connections are rejected.
func TestNodeWithoutAFirstProxyKeepsAnother(t *testing.T) {
	t.Parallel()
	for generation := range uint8(3) {
		m := meshed()
		m.proxy.Generation = generation
		plan, err := NodePlan(NodeProxy{}, m.numbers, m.facts, "test-ambient", m.proxy)
		if err != nil {
			t.Fatal(err)
		}
		for name, w := range walks() {
			if strings.HasPrefix(w.packet, "udp") { // which the proxy gets from translations
				continue
			}
			c := converse(t, m.world(t))
			_, first := c.line(w.from, w.packet)
			c.answer(first)
			c.world.Namespaces[0].Plans[0] = plan
			if again, further := c.repeat(w.from, w.packet); again != w.again {
				t.Errorf("generation %d: %s: goes on at %s, want %s\n%s", generation, name, again, w.again, further.Report())
			}
			if answered, answer := c.answer(first); answered != w.answered {
				t.Errorf("generation %d: %s: the answer ends at %s, want %s\n%s", generation, name, answered, w.answered, answer.Report())
			}
			if w.from != "node" {
				continue
			}
			want := w.ends
			if strings.HasPrefix(want, "proxy") && !strings.Contains(name, "to the proxy's") {
				want = "node rejected"
			}
			c = converse(t, c.world)
			if ends, outcome := c.line(w.from, w.packet); ends != want {
				t.Errorf("generation %d: %s: a new one ends at %s, want %s\n%s", generation, name, ends, want, outcome.Report())
			}
		}
		second := m.proxy
		second.Generation++
		if _, err := NodePlan(NodeProxy{}, m.numbers, m.facts, "test-ambient", m.proxy, second); !errors.Is(err, ErrNodeProxy) {
			t.Errorf("two others beside none: %v, want ErrNodeProxy: no mark is left for new connections", err)
		}
	}
}

// TestNodeFailsClosed has a node without a proxy, one whose proxy lacks a family, and ones that
// another program has taken a part from.
func TestNodeFailsClosed(t *testing.T) {
	t.Parallel()
	captured := []string{
		"tcp in vetha 10.244.0.2:40000 > 198.51.100.7:443", "tcp in eth0 198.51.100.7:40000 > 10.244.0.6:8080",
		"tcp in vetha 10.244.0.2:40000 > 10.244.0.6:8080", "tcp in vethc 10.244.0.10:40000 > 10.244.0.6:15008",
	}
	free := map[string]string{
		"tcp in vethc 10.244.0.10:40000 > 198.51.100.7:443": "node eth0", "tcp uid 0 gid 0 > 10.244.0.6:8080": "node vethb",
		"tcp in vetha 10.244.0.2:40000 > 192.0.2.1:10250": "node kubelet", "udp in vetha 10.244.0.2:40000 > 198.51.100.7:443": "node eth0",
	}
	none, onlyV4 := meshed(), meshed()
	none.proxy = NodeProxy{}
	onlyV4.proxy.Addresses = onlyV4.proxy.Addresses[:1]
	worlds := map[string]trace.World{
		"no proxy": none.world(t), "no proxy, v6": none.world(t), "a proxy of IPv4 only, v6": onlyV4.world(t),
		"no routes":                 without[interception.Route](meshed().world(t)),
		"no routes, v6":             without[interception.Route](meshed().world(t)),
		"nothing but the rules":     without[interception.PolicyRule](meshed().world(t)),
		"nothing but the rules, v6": without[interception.PolicyRule](meshed().world(t)),
	}
	for name, world := range worlds {
		written := func(line string) string { return line }
		if strings.HasSuffix(name, "v6") {
			written = sixth
		}
		for _, line := range captured {
			if ends, outcome := converse(t, world).line("node", written(line)); ends != "node rejected" {
				t.Errorf("%s: %s ends at %s\n%s", name, written(line), ends, outcome.Report())
			}
		}
		for line, want := range free {
			if ends, outcome := converse(t, world).line("node", written(line)); ends != want {
				t.Errorf("%s: %s ends at %s, want %s\n%s", name, written(line), ends, want, outcome.Report())
			}
		}
	}
	if ends, _ := converse(t, onlyV4.world(t)).line("node", captured[0]); ends != "proxy outbound" {
		t.Errorf("a proxy of IPv4 only gets IPv4 at %s", ends)
	}
}

// without takes one kind of object from the plan of the node.
func without[O interception.Object](world trace.World) trace.World {
	plan := *world.Namespaces[0].Plans[0]
	plan.Objects = slices.DeleteFunc(slices.Clone(plan.Objects), func(o interception.Object) bool { _, is := o.(O); return is })
	world.Namespaces[0].Plans = []*interception.Plan{&plan}
	return world
}

// TestNodeRepliesNeverEscape takes away what leads a pod's replies back to the proxy.
func TestNodeRepliesNeverEscape(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"tcp uid 0 gid 0 transparent 198.51.100.7:50000 > 10.244.0.6:8080", "tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 10.244.0.6:8080",
	} {
		for _, line := range []string{line, sixth(line)} {
			c := converse(t, meshed().world(t))
			_, first := c.line("proxy", line)
			c.world = without[interception.PolicyRule](c.world)
			if ends, answer := c.answer(first); ends != "node rejected" {
				t.Errorf("%s: the answer ends at %s\n%s", line, ends, answer.Report())
			}
		}
	}
}

// TestNodeAfterServices has another program that translates a service's address to a meshed pod,
// before the plan and after it.
func TestNodeAfterServices(t *testing.T) {
	t.Parallel()
	services, err := interception.Build("kube-proxy", func(b *interception.Builder) {
		c := b.NAT("services")
		c.Entry(interception.Prerouting, interception.Match{}, "services")
		for service, pod := range map[string]string{"10.96.0.10": "10.244.0.6", "fd00:96::a": "fd00:10:244::6"} {
			address := netip.MustParseAddr(service)
			c.Do(id("service", interception.FamilyOf(address)), interception.Match{Dst: interception.Is(host(address)), L4: interception.TCP()},
				interception.DNATTo{Addr: netip.MustParseAddr(pod), Port: 8080}, "a service")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	m := meshed()
	m.also = []*interception.Plan{services}
	for _, line := range []string{
		"tcp in vethc 10.244.0.10:40000 > 10.96.0.10:80", "tcp in vethc [fd00:10:244::a]:40000 > [fd00:96::a]:80",
		"tcp in eth0 198.51.100.7:40000 > 10.96.0.10:80",
	} {
		c := converse(t, m.world(t))
		ends, first := c.line("node", line)
		if ends != "proxy inbound" || first.Header.Dst.Port() != 8080 {
			t.Errorf("%s ends at %s as %s\n%s", line, ends, first.Header, first.Report())
		}
		if _, answer := c.answer(first); answer.Header.Src.Port() != 80 {
			t.Errorf("%s: the answer comes from %s", line, answer.Header.Src)
		}
	}
}

// TestTunnelsDoNotLeadIntoThemselves sends the packets of a tunnel itself, which have the mark of
// those within.
func TestTunnelsDoNotLeadIntoThemselves(t *testing.T) {
	t.Parallel()
	m := meshed()
	m.proxy.Way = WayVXLAN
	over6 := m
	over6.proxy.Node = netip.MustParseAddr("2001:db8::1")
	for from, want := range map[string]string{
		"node mark 0x100": "proxy refused", "node mark 0x800": "proxy refused", "node mark 0x40": "proxy refused", "proxy mark 0x210": "node refused",
	} {
		namespace, mark, _ := strings.Cut(from, " ")
		to := map[string]string{"node": "10.244.0.14:6081", "proxy": "192.0.2.1:6081"}[namespace]
		for line, world := range map[string]trace.World{
			fmt.Sprintf("udp uid 0 gid 0 %s > %s", mark, to):        m.world(t),
			fmt.Sprintf("udp uid 0 gid 0 %s > %s", mark, sixth(to)): over6.world(t),
		} {
			if ends, outcome := converse(t, world).line(namespace, line); ends != want {
				t.Errorf("%s from %s: ends at %s, want %s\n%s", line, namespace, ends, want, outcome.Report())
			}
		}
	}
}
