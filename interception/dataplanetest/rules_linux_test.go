// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"
)

// smallRules capture a little of a pod's traffic, in both directions and families.
const smallRules = `
table inet sidecar {
	chain output {
		type nat hook output priority -100
		oifname lo ip saddr 127.0.0.6 return
		oifname lo ip6 saddr ::6 return
		oifname lo ip daddr != 127.0.0.1 meta skuid 1337 tcp dport != 15008 redirect to :15006
		oifname lo ip6 daddr != ::1 meta skuid 1337 tcp dport != 15008 redirect to :15006
		oifname lo meta skuid != 1337 return
		udp dport 53 meta skuid != 1337 redirect to :15053
		meta skuid 1337 return
		meta skgid 1338 return
		ip daddr 127.0.0.1 return
		ip6 daddr ::1 return
		ip daddr 198.51.100.0/24 tcp dport 9999 return
		meta l4proto tcp redirect to :15001
	}
	chain prerouting {
		type nat hook prerouting priority -100
		iifname lo return
		tcp dport { 22, 15006 } return
		meta l4proto tcp redirect to :15006
	}
}`

func TestObservesRedirects(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	pod.program(t, smallRules)
	pod.check(t, []expectation{
		{"out", to("198.51.100.7:443"), from(redirected("127.0.0.1:15001", "198.51.100.7:443"), "10.244.1.10")},
		{"out v6", to("[2001:db8:7::7]:443"), redirected("[::1]:15001", "[2001:db8:7::7]:443")},
		{"out as an application", to("198.51.100.7:443").by(1000, 1000), redirected("127.0.0.1:15001", "198.51.100.7:443")},
		{"out as the proxy's user", to("198.51.100.7:443").by(proxy, 0), acceptedAt(Elsewhere, "198.51.100.7:443")},
		{"out as the proxy's user v6", to("[2001:db8:7::7]:443").by(proxy, 0), acceptedAt(Elsewhere, "[2001:db8:7::7]:443")},
		{"out as the proxy's group", to("198.51.100.7:443").by(0, 1338), acceptedAt(Elsewhere, "198.51.100.7:443")},
		{"out as another group", to("198.51.100.7:443").by(0, 1339), redirected("127.0.0.1:15001", "198.51.100.7:443")},
		{"excluded", to("198.51.100.7:9999"), acceptedAt(Elsewhere, "198.51.100.7:9999")},
		{"loopback", to("127.0.0.1:8080"), redirected("127.0.0.1:8080", "127.0.0.1:8080")},
		{"in", to("10.244.1.10:8080").outside(), from(redirected("10.244.1.10:15006", "10.244.1.10:8080"), "192.0.2.1")},
		{"in v6", to("[fd00:10:244:1::a]:8080").outside(), redirected("[fd00:10:244:1::a]:15006", "[fd00:10:244:1::a]:8080")},
		{"in where nobody listened", to("10.244.1.10:81").outside(), redirected("10.244.1.10:15006", "10.244.1.10:81")},
		{"in excluded", to("10.244.1.10:22").outside(), Observation{Verdict: Refused, Err: syscall.ECONNREFUSED}},
		{"self-call by the proxy", to("10.244.1.10:8080").by(proxy, proxy), redirected("127.0.0.1:15006", "10.244.1.10:8080")},
		{"self-call by the proxy v6", to("[fd00:10:244:1::a]:8080").by(proxy, proxy), redirected("[::1]:15006", "[fd00:10:244:1::a]:8080")},
		{"the proxy's inbound source", to("10.244.1.10:8080").by(proxy, proxy).at("127.0.0.6"), from(redirected("10.244.1.10:8080", "10.244.1.10:8080"), "127.0.0.6")},
		{"dns", to("198.51.100.53:53").udp(), acceptedAt(InPod, "127.0.0.1:15053")},
		{"dns v6", to("[2001:db8:7::53]:53").udp(), acceptedAt(InPod, "[::1]:15053")},
		{"dns by the proxy", to("198.51.100.53:53").udp().by(proxy, proxy), acceptedAt(Elsewhere, "198.51.100.53:53")},
		{"other udp", to("198.51.100.53:123").udp(), acceptedAt(Elsewhere, "198.51.100.53:123")},
	})
}

func TestTellsDroppedFromRefused(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	pod.program(t, `
table inet filter {
	chain output {
		type filter hook output priority 0
		th dport 1001 drop
		tcp dport 1002 reject with tcp reset
		ip daddr 198.51.100.9 reject with icmp host-unreachable
		udp dport 1002 reject
	}
	chain input {
		type filter hook input priority 0
		tcp dport 8080 ip saddr 203.0.113.9 drop
		udp dport 8080 ip saddr 203.0.113.9 drop
		tcp dport 8080 ip saddr 203.0.113.10 reject with icmpx admin-prohibited
	}
}`)
	dropped := Observation{Verdict: Dropped}
	refused := func(err error) Observation { return Observation{Verdict: Refused, Err: err} }
	pod.check(t, []expectation{
		{"dropped on its way out", to("198.51.100.7:1001"), dropped},
		{"dropped on its way out v6", to("[2001:db8:7::7]:1001"), dropped},
		{"dropped on its way out udp", to("198.51.100.7:1001").udp(), dropped},
		{"dropped on its way in", to("10.244.1.10:8080").outside().at("203.0.113.9"), dropped},
		{"dropped on its way in udp", to("10.244.1.10:8080").outside().udp().at("203.0.113.9"), dropped},
		{"reset", to("198.51.100.7:1002"), refused(syscall.ECONNREFUSED)},
		{"unreachable host", to("198.51.100.9:1004"), refused(syscall.EHOSTUNREACH)},
		{"unreachable port udp", to("198.51.100.7:1002").udp(), refused(syscall.ECONNREFUSED)},
		{"prohibited", to("10.244.1.10:8080").outside().at("203.0.113.10"), refused(syscall.EHOSTUNREACH)},
		{"neither", to("198.51.100.7:1005"), acceptedAt(Elsewhere, "198.51.100.7:1005")},
	})
}

func TestDropWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	pod := NewPod(t, PodOptions{DropAfter: time.Hour})
	pod.program(t, `table inet filter { chain output { type filter hook output priority 0; tcp dport 1001 drop; }; }`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := pod.Send(ctx, to("198.51.100.7:1001")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v, want %v", got, err, context.DeadlineExceeded)
	}
}
