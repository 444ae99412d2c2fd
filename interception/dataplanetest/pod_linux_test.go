// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestPodWithoutRules(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	if err := pod.AddAddress(t.Context(), "lo", netip.MustParsePrefix("::6/128")); err != nil {
		t.Fatal(err)
	}
	refused := Observation{Verdict: Refused, Err: syscall.ECONNREFUSED}
	pod.check(t, []expectation{
		{"out", to("198.51.100.7:443"), from(acceptedAt(Elsewhere, "198.51.100.7:443"), "10.244.1.10")},
		{"out to a neighbour", to("10.244.1.11:80"), acceptedAt(Elsewhere, "10.244.1.11:80")},
		{"out v6", to("[2001:db8:7::7]:443"), from(acceptedAt(Elsewhere, "[2001:db8:7::7]:443"), "fd00:10:244:1::a")},
		{"out v6 to a neighbour", to("[fd00:10:244:1::b]:80"), acceptedAt(Elsewhere, "[fd00:10:244:1::b]:80")},
		{"out udp", to("198.51.100.7:53").udp(), from(acceptedAt(Elsewhere, "198.51.100.7:53"), "10.244.1.10")},
		{"out udp v6", to("[2001:db8:7::7]:53").udp(), from(acceptedAt(Elsewhere, "[2001:db8:7::7]:53"), "fd00:10:244:1::a")},
		{"in", to("10.244.1.10:8080").outside(), from(acceptedAt(InPod, "10.244.1.10:8080"), "192.0.2.1")},
		{"in v6", to("[fd00:10:244:1::a]:8080").outside(), from(acceptedAt(InPod, "[fd00:10:244:1::a]:8080"), "2001:db8::1")},
		{"in udp", to("10.244.1.10:8080").udp().outside(), from(acceptedAt(InPod, "10.244.1.10:8080"), "192.0.2.1")},
		{"in from anywhere", to("10.244.1.10:8080").outside().at("203.0.113.9"), from(acceptedAt(InPod, "10.244.1.10:8080"), "203.0.113.9")},
		{"in from anywhere v6", to("[fd00:10:244:1::a]:8080").outside().at("2001:db8:9::9"), from(acceptedAt(InPod, "[fd00:10:244:1::a]:8080"), "2001:db8:9::9")},
		{"in udp from anywhere", to("10.244.1.10:8080").udp().outside().at("203.0.113.9"), from(acceptedAt(InPod, "10.244.1.10:8080"), "203.0.113.9")},
		{"loopback", to("127.0.0.1:8080"), from(acceptedAt(InPod, "127.0.0.1:8080"), "127.0.0.1")},
		{"loopback v6", to("[::1]:8080"), from(acceptedAt(InPod, "[::1]:8080"), "::1")},
		{"loopback udp", to("127.0.0.1:8080").udp(), from(acceptedAt(InPod, "127.0.0.1:8080"), "127.0.0.1")},
		{"to itself", to("10.244.1.10:8080"), from(acceptedAt(InPod, "10.244.1.10:8080"), "10.244.1.10")},
		{"from 127.0.0.6", to("10.244.1.10:8080").at("127.0.0.6"), from(acceptedAt(InPod, "10.244.1.10:8080"), "127.0.0.6")},
		{"from ::6", to("[fd00:10:244:1::a]:8080").at("::6"), from(acceptedAt(InPod, "[fd00:10:244:1::a]:8080"), "::6")},
		{"nobody listens", to("10.244.1.10:81").outside(), refused},
		{"nobody listens udp", to("10.244.1.10:81").udp().outside(), refused},
		{"nobody listens on loopback v6", to("[::1]:81"), refused},
		{"as another user", to("198.51.100.7:443").by(proxy, proxy), acceptedAt(Elsewhere, "198.51.100.7:443")},
	})
}

func TestPodWithAddressesOfItsOwn(t *testing.T) {
	t.Parallel()
	pod := NewPod(t, PodOptions{Addresses: []netip.Addr{netip.MustParseAddr("172.16.5.5")}, Ports: []uint16{app}})
	if err := pod.AddAddress(t.Context(), "eth0", netip.MustParsePrefix("fd01::5/64")); err != nil {
		t.Fatal(err)
	}
	pod.check(t, []expectation{
		{"in", to("172.16.5.5:8080").outside(), acceptedAt(InPod, "172.16.5.5:8080")},
		{"in to an address added later", to("[fd01::5]:8080").outside(), acceptedAt(InPod, "[fd01::5]:8080")},
		{"out", to("10.244.1.10:8080"), from(acceptedAt(Elsewhere, "10.244.1.10:8080"), "172.16.5.5")},
	})
}

func TestPodIsANamespaceByPathAndByFile(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	byPath, err := os.Stat(pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	byFile, err := pod.File().Stat()
	if err != nil {
		t.Fatal(err)
	}
	var inside os.FileInfo
	if err := pod.Do(func() (err error) {
		inside, err = os.Stat("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(byPath, byFile) || !os.SameFile(byPath, inside) {
		t.Errorf("path, file and Do lead to different namespaces: %v, %v, %v", byPath.Sys(), byFile.Sys(), inside.Sys())
	}
}

func TestProbesInParallelNeverMix(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	var group sync.WaitGroup
	for i := range 400 {
		probe := to(fmt.Sprintf("198.51.%d.%d:%d", i/200, i%200, 1000+i%7))
		if i%2 == 1 {
			probe = probe.udp()
		}
		group.Go(func() {
			got, err := pod.Send(t.Context(), probe)
			if err != nil || got.Verdict != Accepted || got.LocalAddr != probe.Dst {
				t.Errorf("%s: %v, %v", probe, got, err)
			}
		})
	}
	group.Wait()
}

func TestSendRefusesProbesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	for name, probe := range map[string]Probe{
		"nothing":               {},
		"no port":               to("198.51.100.7:0"),
		"no place":              {From: 7, Dst: netip.MustParseAddrPort("198.51.100.7:1")},
		"no protocol":           {Protocol: 7, Dst: netip.MustParseAddrPort("198.51.100.7:1")},
		"two families":          to("198.51.100.7:1").at("::1"),
		"a zone":                to("[fe80::1%eth0]:1"),
		"v4 in v6":              to("[::ffff:198.51.100.7]:1"),
		"an owner elsewhere":    to("10.244.1.10:1").outside().by(proxy, 0),
		"a mark elsewhere":      {From: Elsewhere, Mark: 1, Dst: netip.MustParseAddrPort("10.244.1.10:1")},
		"transparent elsewhere": {From: Elsewhere, Transparent: true, Dst: netip.MustParseAddrPort("10.244.1.10:1")},
		"past the pod":          to("198.51.100.7:1").outside(),
		"to the pod's loopback": to("127.0.0.1:8080").outside(),
	} {
		if got, err := pod.Send(t.Context(), probe); !errors.Is(err, ErrProbe) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, ErrProbe)
		}
	}
	if got, err := pod.Send(t.Context(), to("198.51.100.7:1").at("10.9.9.9")); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("from an address that isn't the pod's: %v, %v, want %v", got, err, syscall.EADDRNOTAVAIL)
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, probe := range []Probe{to("198.51.100.7:1"), to("198.51.100.7:1").udp()} {
		if got, err := pod.Send(ctx, probe); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, %v, want %v", probe, got, err, context.Canceled)
		}
	}
}

// TestAsOrdinaryUser runs all the other tests as a user with a single id, except those that start
// this program again, which such a user may not.
func TestAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	info, err := sandbox.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.SingleID {
		return // this very run is the case
	}
	// Without this test and those that run this program by its path: that user may not.
	command := sandbox.AsOrdinaryUser(t.Context(), 54323, "-test.skip=^(TestAsOrdinaryUser|TestEachBreachIsFound|TestEachUpdateBreachIsFound|"+
		"TestOtherLawsAreTestedDespiteAPanic|TestGroundThatOccupiesNothingIsFound)$")
	command.Env = append(command.Env, "GORACE=atexit_sleep_ms=0")
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

func BenchmarkSend(b *testing.B) {
	pod := NewPod(b, PodOptions{})
	for b.Loop() {
		if _, err := pod.Send(b.Context(), to("198.51.100.7:443")); err != nil {
			b.Fatal(err)
		}
	}
}

func TestListenersBelongToWhomTheyShould(t *testing.T) {
	t.Parallel()
	info, err := sandbox.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.SingleID {
		t.Skip("needs a second uid: " + info.Reason)
	}
	pod := NewPod(t, PodOptions{Ports: []uint16{app}, ProxyPorts: []uint16{outbound}, ProxyUID: proxy, ProxyGID: proxy + 1})
	pod.program(t, `
table inet filter {
	chain output {
		type filter hook output priority 0
		th sport 15001 meta skuid 1337 meta skgid 1338 accept
		th sport 8080 meta skuid 0 meta skgid 0 accept
		th sport { 8080, 15001 } drop
	}
}`)
	pod.check(t, []expectation{
		{"proxy", to("10.244.1.10:15001").outside(), acceptedAt(InPod, "10.244.1.10:15001")},
		{"proxy udp", to("10.244.1.10:15001").outside().udp(), acceptedAt(InPod, "10.244.1.10:15001")},
		{"application", to("10.244.1.10:8080").outside(), acceptedAt(InPod, "10.244.1.10:8080")},
		{"application v6 udp", to("[fd00:10:244:1::a]:8080").outside().udp(), acceptedAt(InPod, "[fd00:10:244:1::a]:8080")},
	})
}

func TestAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	pod.program(t, `
table inet filter {
	chain input {
		type filter hook input priority 0
		udp sport 53 drop
		tcp sport 443 tcp flags & psh == psh drop
	}
}`)
	lost := func(o Observation) Observation { o.Answered = false; return o }
	pod.check(t, []expectation{
		{"udp", to("198.51.100.7:53").udp(), lost(acceptedAt(Elsewhere, "198.51.100.7:53"))},
		{"udp v6", to("[2001:db8:7::7]:53").udp(), lost(acceptedAt(Elsewhere, "[2001:db8:7::7]:53"))},
		{"tcp", to("198.51.100.7:443"), lost(acceptedAt(Elsewhere, "198.51.100.7:443"))},
	})
}

// TestMarkedListeners has rules that let only answers with the proxy's mark pass.
func TestMarkedListeners(t *testing.T) {
	t.Parallel()
	checkMarks(t, func(*interception.Builder) {}, map[string]bool{
		"tcp in eth0 192.0.2.9:40000 > 10.244.1.10:15006": true, "tcp in eth0 [2001:db8::9]:40000 > [fd00:10:244:1::a]:15006": true,
		"tcp in eth0 192.0.2.9:40000 > 10.244.1.10:8080": false,
	})
}

// TestInheritedMarks has, besides, a setting by which a listener without a mark answers with the
// mark of the packet that opened the connection.
func TestInheritedMarks(t *testing.T) {
	t.Parallel()
	fill := func(b *interception.Builder) {
		b.Sysctl(interception.Sysctl{ID: "accept", Key: "ipv4/tcp_fwmark_accept", Value: 1, Why: "the mark is inherited"})
		c := b.Mangle("marks")
		c.Entry(interception.Prerouting, interception.Match{}, "clients")
		for _, client := range []struct {
			id     interception.RuleID
			prefix string
			mark   interception.Mark
		}{{"the-mark.v4", "192.0.2.9/32", 0x539}, {"the-mark.v6", "2001:db8::9/128", 0x539}, {"other", "192.0.2.10/32", 7}} {
			c.Do(client.id, interception.Match{Src: interception.Is(interception.Prefixes(netip.MustParsePrefix(client.prefix)))},
				interception.SetMark{Mark: interception.WholeMark(client.mark)}, "of a client")
		}
	}
	checkMarks(t, fill, map[string]bool{
		"tcp in eth0 192.0.2.9:40000 > 10.244.1.10:8080": true, "tcp in eth0 [2001:db8::9]:40000 > [fd00:10:244:1::a]:8080": true,
		"tcp in eth0 192.0.2.10:40000 > 10.244.1.10:8080":  false,
		"tcp in eth0 192.0.2.10:40000 > 10.244.1.10:15006": true,
		"tcp in eth0 192.0.2.11:40000 > 10.244.1.10:8080":  false,
	})
}

// checkMarks compares which packets are answered, with the trace too. Answers need the mark of the
// proxy's listener on port 15006; the one on port 8080 has none.
func checkMarks(t *testing.T, fill func(*interception.Builder), packets map[string]bool) {
	t.Helper()
	pod := NewPod(t, PodOptions{Ports: []uint16{8080}, ProxyPorts: []uint16{15006}, ProxyMark: 0x539})
	plan, err := interception.Build("test-marks", func(b *interception.Builder) {
		fill(b)
		c := b.Filter("output")
		c.Entry(interception.Output, interception.Match{}, "answers")
		port := interception.Ports(8080, 15006)
		c.Do("unmarked", interception.Match{
			L4: interception.TCP().From(port), Mark: interception.Not(interception.WholeMark(0x539)),
		}, interception.Drop{}, "not of the proxy")
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Apply(t.Context(), d, plan); err != nil {
		t.Fatal(err)
	}
	world, err := pod.World(plan)
	if err != nil {
		t.Fatal(err)
	}
	for line, answered := range packets {
		packet, err := trace.ParsePacket(line)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pod.Compare(t.Context(), world, packet)
		if err != nil || c.Disagreement != "" || (c.Observed.Verdict == Accepted) != answered {
			t.Errorf("%s: %v, want that it is answered: %t\n%s", line, err, answered, c.Report())
		}
	}
}

// TestMarkedAndTransparent has a proxy that uses its client's address: its mark brings the answer
// back to it.
func TestMarkedAndTransparent(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	pod.program(t, `
table inet filter {
	chain output {
		type filter hook output priority 0
		meta mark 0x7 tcp dport 1001 reject with tcp reset
	}
}`)
	marked := to("198.51.100.7:1001")
	marked.Mark = 7
	foreign := to("10.244.1.10:8080").udp().at("203.0.113.9")
	foreign.Transparent = true
	arrived := from(acceptedAt(InPod, "10.244.1.10:8080"), "203.0.113.9")
	arrived.Answered = false // it left by eth0
	pod.check(t, []expectation{
		{"marked", marked, Observation{Verdict: Refused, Err: syscall.ECONNREFUSED}},
		{"not marked", to("198.51.100.7:1001"), acceptedAt(Elsewhere, "198.51.100.7:1001")},
		{"transparent", foreign, arrived},
	})
}
