// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
)

func podPlan(t *testing.T, annotations map[string]string, dns bool) *interception.Plan {
	t.Helper()
	o, _, err := parse(annotations, dns)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := PodPlan(o, IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// pod returns the world of a pod with an application, and with the proxy's listeners.
func pod(plan *interception.Plan) trace.World {
	return trace.Sidecar(plan, trace.SidecarOptions{Listeners: []trace.Listener{
		{Name: "application", Protocol: interception.TCP().Protocol(), Port: 8080},
		{Name: "tunnel", Proxy: true, Protocol: interception.TCP().Protocol(), Port: 15008},
		{Name: "outbound", Proxy: true, Protocol: interception.TCP().Protocol(), Port: 15001},
		{Name: "inbound", Proxy: true, Protocol: interception.TCP().Protocol(), Port: 15006},
		{Name: "dns", Proxy: true, Protocol: interception.TCP().Protocol(), Port: 15053},
		{Name: "dns", Proxy: true, Protocol: interception.UDP().Protocol(), Port: 15053},
	}})
}

// ends returns the listener that takes a packet, or the link that it leaves by.
func ends(t *testing.T, world trace.World, line string) (string, trace.Outcome) {
	t.Helper()
	packet, err := trace.ParsePacket(line)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := trace.Trace(world, packet)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Verdict == trace.Delivered {
		return outcome.Listener.Name, outcome
	}
	return fmt.Sprintf("%s %s", outcome.Verdict, outcome.Link), outcome
}

func TestPodPlanWalks(t *testing.T) {
	t.Parallel()
	exclusions := map[string]string{
		"traffic.istio.io/excludeInterfaces": "eth0", "traffic.istio.io/excludeInboundPorts": "9090",
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		packet      string
		want        string
	}{
		"to the pod":             {packet: "tcp in eth0 10.244.1.7:40000 > 10.244.0.2:8080", want: "inbound"},
		"to the pod, v6":         {packet: "tcp in eth0 [fd00:10:244:1::7]:40000 > [fd00:10:244::2]:8080", want: "inbound"},
		"to the tunnel":          {packet: "tcp in eth0 10.244.1.7:40000 > 10.244.0.2:15008", want: "tunnel"},
		"a probe":                {packet: "tcp in eth0 169.254.7.127:40000 > 10.244.0.2:8080", want: "application"},
		"a probe, v6":            {packet: "tcp in eth0 [fd16:9254:7127:1337:ffff:ffff:ffff:ffff]:40000 > [fd00:10:244::2]:8080", want: "application"},
		"from the pod":           {packet: "tcp uid 1000 gid 1000 > 192.0.2.1:443", want: "outbound"},
		"from the pod, v6":       {packet: "tcp uid 1000 gid 1000 > [2001:db8::1]:443", want: "outbound"},
		"from the proxy":         {packet: "tcp uid 0 gid 0 mark 0x539 > 192.0.2.1:443", want: "sent eth0"},
		"from a root user":       {packet: "tcp uid 0 gid 0 > 192.0.2.1:443", want: "outbound"},
		"higher bits of others":  {packet: "tcp uid 0 gid 0 mark 0xa0539 > 192.0.2.1:443", want: "sent eth0"},
		"to its own address":     {packet: "tcp uid 1000 gid 1000 > 10.244.0.2:8080", want: "application"},
		"to localhost":           {packet: "tcp uid 1000 gid 1000 > 127.0.0.1:8080", want: "application"},
		"to localhost, v6":       {packet: "tcp uid 1000 gid 1000 > [::1]:8080", want: "application"},
		"query":                  {packet: "udp uid 1000 gid 1000 > 10.96.0.10:53", want: "dns"},
		"query over TCP":         {packet: "tcp uid 1000 gid 1000 > 10.96.0.10:53", want: "dns"},
		"query of the proxy":     {packet: "udp uid 0 gid 0 mark 0x539 > 10.96.0.10:53", want: "sent eth0"},
		"other UDP":              {packet: "udp uid 1000 gid 1000 > 192.0.2.1:443", want: "sent eth0"},
		"in the client's name":   {packet: "tcp uid 0 gid 0 mark 0x539 transparent 10.244.1.7:40000 > 10.244.0.2:8080", want: "application"},
		"bypass":                 {annotations: map[string]string{"ambient.istio.io/bypass-inbound-capture": "true"}, packet: "tcp in eth0 10.244.1.7:40000 > 10.244.0.2:8080", want: "application"},
		"excluded in":            {annotations: exclusions, packet: "tcp in eth0 10.244.1.7:40000 > 10.244.0.2:8080", want: "application"},
		"excluded out":           {annotations: exclusions, packet: "tcp uid 1000 gid 1000 > 192.0.2.1:443", want: "sent eth0"},
		"excluded inbound port":  {annotations: map[string]string{"traffic.istio.io/excludeInboundPorts": "8080"}, packet: "tcp in eth0 10.244.1.7:40000 > 10.244.0.2:8080", want: "application"},
		"port not included":      {annotations: map[string]string{"traffic.istio.io/includeInboundPorts": "80"}, packet: "tcp in eth0 10.244.1.7:40000 > 10.244.0.2:8080", want: "application"},
		"no port included":       {annotations: map[string]string{"traffic.istio.io/includeInboundPorts": ""}, packet: "tcp in eth0 10.244.1.7:40000 > 10.244.0.2:8080", want: "application"},
		"excluded outbound port": {annotations: map[string]string{"traffic.istio.io/excludeOutboundPorts": "443"}, packet: "tcp uid 1000 gid 1000 > 192.0.2.1:443", want: "sent eth0"},
		"excluded queries":       {annotations: map[string]string{"traffic.istio.io/excludeOutboundPorts": "53"}, packet: "udp uid 1000 gid 1000 > 10.96.0.10:53", want: "sent eth0"},
		"excluded prefix":        {annotations: map[string]string{"traffic.istio.io/excludeOutboundIPRanges": "192.0.2.0/24"}, packet: "tcp uid 1000 gid 1000 > 192.0.2.1:443", want: "sent eth0"},
		"prefix not included":    {annotations: map[string]string{"traffic.istio.io/includeOutboundIPRanges": "10.0.0.0/8"}, packet: "tcp uid 1000 gid 1000 > 192.0.2.1:443", want: "sent eth0"},
		"included prefix":        {annotations: map[string]string{"traffic.istio.io/includeOutboundIPRanges": "192.0.2.0/24"}, packet: "tcp uid 1000 gid 1000 > 192.0.2.1:443", want: "outbound"},
		"included port": {
			annotations: map[string]string{"traffic.istio.io/includeOutboundIPRanges": "", "traffic.istio.io/includeOutboundPorts": "443"},
			packet:      "tcp uid 1000 gid 1000 > 192.0.2.1:443", want: "outbound",
		},
		"many prefixes": {
			annotations: map[string]string{"traffic.istio.io/excludeOutboundIPRanges": "10.1.0.0/24,10.3.0.0/24,10.5.0.0/24,10.7.0.0/24,10.9.0.0/24,10.11.0.0/24,10.13.0.0/24,192.0.2.0/24"},
			packet:      "tcp uid 1000 gid 1000 > 192.0.2.1:443", want: "sent eth0",
		},
		"virtual machine": {
			annotations: map[string]string{"istio.io/reroute-virtual-interfaces": "eth0"},
			packet:      "tcp in eth0 10.244.1.7:40000 > 192.0.2.1:443", want: "outbound",
		},
		"virtual machine, excluded port": {
			annotations: map[string]string{"istio.io/reroute-virtual-interfaces": "eth0", "traffic.istio.io/excludeOutboundPorts": "8080"},
			packet:      "tcp in eth0 10.244.1.7:40000 > 10.244.0.2:8080", want: "application",
		},
	} {
		if got, outcome := ends(t, pod(podPlan(t, test.annotations, true)), test.packet); got != test.want {
			t.Errorf("%s: %s, want %s\n%s", name, got, test.want, outcome.Report())
		}
	}
}

// TestPodPlanReturnsReplies follows what the application answers to a connection that the proxy
// opened with its client's address.
func TestPodPlanReturnsReplies(t *testing.T) {
	t.Parallel()
	world := pod(podPlan(t, nil, true))
	for _, line := range []string{
		"tcp uid 0 gid 0 mark 0x539 transparent 10.244.1.7:40000 > 10.244.0.2:8080",
		"tcp uid 0 gid 0 mark 0x539 transparent [fd00:10:244:1::7]:40000 > [fd00:10:244::2]:8080",
	} {
		taken, outcome := ends(t, world, line)
		answer, err := trace.Trace(world, outcome.Answer(trace.Socket{UID: 1000, GID: 1000}))
		if err != nil {
			t.Fatal(err)
		}
		if taken != "application" || answer.Verdict != trace.Delivered || answer.Socket == nil || answer.Socket.Mark != 0x539 {
			t.Errorf("%s: taken by %s, and the answer is not for the proxy:\n%s", line, taken, answer.Report())
		}
	}
}

// TestPodPlanHasNoRuleInVain lets Lint look at each combination of what a pod may ask for.
func TestPodPlanHasNoRuleInVain(t *testing.T) {
	t.Parallel()
	choices := []struct{ key, value string }{
		{"ambient.istio.io/bypass-inbound-capture", "true"},
		{"istio.io/reroute-virtual-interfaces", "net1"},
		{"traffic.istio.io/excludeInterfaces", "net2"},
		{"traffic.istio.io/includeInboundPorts", "80,443"},
		{"traffic.istio.io/excludeInboundPorts", "443,9090"},
		{"traffic.istio.io/includeOutboundPorts", "25"},
		{"traffic.istio.io/excludeOutboundPorts", "53,3306"},
		{"traffic.istio.io/includeOutboundIPRanges", "10.0.0.0/8,fd00::/8"},
		{"traffic.istio.io/excludeOutboundIPRanges", "10.1.0.0/16"},
	}
	for combination := range 1 << len(choices) {
		annotations := map[string]string{}
		for i, choice := range choices {
			if combination&(1<<i) != 0 {
				annotations[choice.key] = choice.value
			}
		}
		plan := podPlan(t, annotations, combination%2 == 0)
		findings, err := proof.Lint(plan, proof.Options{})
		if err != nil || len(findings) > 0 {
			t.Fatalf("%v: %v, %v\n%s", annotations, findings, err, plan)
		}
	}
}

func TestPodPlanWithoutIPv6NamesNoIPv6(t *testing.T) {
	t.Parallel()
	plan, err := PodPlan(DefaultOverrides(true), IstioNumbers(), interception.Facts{}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	if text := plan.String(); strings.Contains(text, "v6") || strings.Contains(text, "::") {
		t.Errorf("a plan without IPv6 names it:\n%s", text)
	}
}

// TestPodPlanWithoutIPv6OnLoopback checks that only what the kernel would refuse is left out.
func TestPodPlanWithoutIPv6OnLoopback(t *testing.T) {
	t.Parallel()
	whole := podPlan(t, nil, true)
	plan, err := PodPlan(DefaultOverrides(true), IstioNumbers(), interception.Facts{IPv6: true}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(slices.Clone(whole.Objects), func(o interception.Object) bool {
		switch o := o.(type) {
		case interception.Route:
			return o.ID == "replies.route.v6"
		case interception.PolicyRule:
			return o.ID == "replies.rule.v6"
		}
		return false
	})
	if len(want) != len(whole.Objects)-2 || !reflect.DeepEqual(plan.Objects, want) {
		t.Errorf("got\n%s\nand with IPv6 on lo\n%s", plan, whole)
	}
}

func TestPodPlanRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(n *Numbers){
		"no mark":           func(n *Numbers) { n.ProxyMark = interception.MarkBits{} },
		"same marks":        func(n *Numbers) { n.ReplyMark = n.ProxyMark },
		"overlapping marks": func(n *Numbers) { n.ReplyMark = interception.MarkBits{Value: 0x1, Mask: 0x1} },
		"no table":          func(n *Numbers) { n.Table = 0 },
		"no priority":       func(n *Numbers) { n.Priority = 0 },
		"no zone":           func(n *Numbers) { n.Zone = 0 },
		"no port":           func(n *Numbers) { n.DNSPort = 0 },
		"same ports":        func(n *Numbers) { n.InboundPort = n.OutboundPort },
		"no probe address":  func(n *Numbers) { n.Probes[0] = netip.Addr{} },
		"loopback probe":    func(n *Numbers) { n.Probes[0] = netip.MustParseAddr("127.0.0.1") },
		"mapped probe":      func(n *Numbers) { n.Probes[0] = netip.MustParseAddr("::ffff:192.0.2.1") },
	} {
		numbers := IstioNumbers()
		change(&numbers)
		if plan, err := PodPlan(DefaultOverrides(true), numbers, interception.Facts{}, "test-ambient"); !errors.Is(err, ErrNumbers) || plan != nil {
			t.Errorf("%s: %v, want ErrNumbers", name, err)
		}
	}
	o, _, err := parse(map[string]string{"traffic.istio.io/excludeInterfaces": "lo"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := PodPlan(o, IstioNumbers(), interception.Facts{}, "test-ambient"); err == nil || !strings.Contains(err.Error(), "lo is") {
		t.Errorf("lo excluded: %v, want an error", err)
	}
	if _, err := PodPlan(DefaultOverrides(false), IstioNumbers(), interception.Facts{}, ""); !errors.Is(err, interception.ErrPlan) {
		t.Errorf("no owner: %v, want ErrPlan", err)
	}
}
