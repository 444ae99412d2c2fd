// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"flag"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

var (
	worlds    = flag.Int("worlds", 100, "how many random worlds with forwarding")
	firstSeed = flag.Uint64("world-seed", 1, "the seed of the first random world")
)

// TestForwardingAgreesWithTrace sends real packets through random routers, and compares where they
// and their answers arrive with package trace.
func TestForwardingAgreesWithTrace(t *testing.T) {
	t.Parallel()
	var kinds []kindOfRouter
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		kinds = append(kinds, kindOfRouter{family, false}, kindOfRouter{family, true})
	}
	for i, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			runtime.LockOSThread() // never unlocked: the thread ends with the test
			if err := onOneCPU(i); err != nil {
				t.Fatal(err)
			}
			agree(t, kind, i, len(kinds))
		})
	}
}

// agree compares the worlds whose seeds are of this kind: one of so many in turn.
func agree(t *testing.T, kind kindOfRouter, turn, of int) {
	t.Helper()
	d, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRouter(t, kind)
	begin, count, ends := time.Now(), 0, map[string]int{}
	for seed := *firstSeed; seed < *firstSeed+uint64(*worlds); seed++ {
		if seed%uint64(of) != uint64(turn) {
			continue
		}
		count++
		c := sample.Seeded(seed)
		plan := kind.randomPlan(t, c)
		if err := d.Apply(t.Context(), r.netns, plan); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, plan)
		}
		world := r.world
		world.Namespaces = slices.Clone(world.Namespaces)
		world.Namespaces[1].Plans = []*interception.Plan{plan}
		for range 6 {
			ends[r.compare(world, c, seed)]++
		}
		r.must(d.Remove(t.Context(), r.netns, plan.Owner))
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, plan)
		}
	}
	for _, protocol := range protocols() {
		for end, enough := range map[string]int{"lost": 25, "answered": 25, "answer lost": 500} {
			if count >= enough && ends[name(protocol)+" "+end] == 0 {
				t.Errorf("in %d worlds no %s is %s: they test too little", count, name(protocol), end)
			}
		}
	}
	t.Logf("%d worlds from seed %d on, %.0f a minute: %v", count, *firstSeed, float64(count)/time.Since(begin).Minutes(), ends)
}

// name returns the protocol's name.
func name(protocol interception.Protocol) string {
	if protocol == trace.ICMP {
		return "icmp"
	}
	return protocol.String()
}

// onOneCPU keeps the thread on one of the CPUs that it may use: for different numbers, on different
// ones if there are several.
func onOneCPU(number int) error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	number %= all.Count()
	for cpu := 0; one.Count() == 0; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		if number == 0 {
			one.Set(cpu)
		}
		number--
	}
	return unix.SchedSetaffinity(0, &one)
}

// compare sends a packet and follows what comes of it: the answer and, for TCP, the end of the
// handshake.
func (r *router) compare(world trace.World, c sample.Choices, seed uint64) (kind string) {
	r.t.Helper()
	r.forget()
	r.port++
	client, server := r.ends["client"], r.ends["server"]
	protocol := sample.Pick(c, protocols()...)
	src := netip.AddrPortFrom(r.addr(sample.Pick(c, "10.1.0.2", "10.1.0.2", "10.2.0.2")), r.port)
	dst := netip.AddrPortFrom(r.addr(sample.Pick(c, append(serverAddresses(), "198.51.100.7", "198.51.100.9")...)), farPort(protocol))
	for _, end := range []*talker{client, server} {
		end.sightings(protocol) // forget
	}
	socket := client.open(protocol, src, dst)
	defer func() {
		r.must(unix.Close(socket))
		r.settle()
		server.hangUp()
		r.settle()
	}()
	r.settle()
	there, err := trace.Follow(world, trace.Packet{From: trace.Socket{Namespace: "client"}, Protocol: protocol, Src: src, Dst: dst}, nil)
	r.must(err)
	seen := server.sightings(protocol)
	end, arrived := r.wantSeen(seed, "server", there, seen, interception.FlagSYN)
	if !arrived {
		return name(protocol) + " lost"
	}
	back, err := trace.Follow(world, end.Answer(trace.Socket{Namespace: "server"}), there.Flows)
	r.must(err)
	if protocol == interception.ProtocolUDP {
		_ = unix.Sendto(server.datagrams[end.Header.Dst.Addr()], []byte{2}, 0, sockaddr(end.Header.Src)) // that it is lost is for the client to notice
		r.settle()
	}
	answer, answered := r.wantSeen(seed, "client", back, client.sightings(protocol), interception.FlagSYN|interception.FlagACK)
	if protocol == interception.ProtocolTCP && established(socket) != (answered && answer.Socket != nil) {
		r.t.Errorf("seed %d: the connection is made: %t, want %t\n%s%s", seed, established(socket), !established(socket), there.Report(), back.Report())
	}
	if !answered || answer.Socket == nil {
		return name(protocol) + " answer lost"
	}
	if protocol == interception.ProtocolTCP {
		next := there.Outcomes[0].Next()
		next.Flow = nil // the flow through all namespaces has changed
		last, err := trace.Follow(world, next, back.Flows)
		r.must(err)
		r.wantSeen(seed, "server", last, seen, interception.FlagACK)
	}
	return name(protocol) + " answered"
}

// wantSeen compares what was delivered in a namespace with the end of a packet's journey. Of TCP it
// looks at the segments with these flags.
func (r *router) wantSeen(seed uint64, at string, journey trace.Journey, seen []sighting, flags interception.TCPFlag) (trace.Outcome, bool) {
	r.t.Helper()
	end := journey.End()
	seen = slices.DeleteFunc(slices.Clone(seen), func(s sighting) bool { return s.flags != 0 && s.flags != flags })
	var want []sighting
	comes := (end.Verdict == trace.Delivered || end.Verdict == trace.Refused) && end.Namespace == at
	if comes && end.Packet.Dst.Port() != tunnelPort {
		want = []sighting{{src: end.Header.Src, dst: end.Header.Dst}}
		if end.Packet.Protocol == interception.ProtocolTCP {
			want[0].flags = flags
		}
	}
	if !slices.Equal(seen, want) {
		r.t.Errorf("seed %d: the %s sees %v, want %v\n%s", seed, at, seen, want, journey.Report())
	}
	return end, len(want) > 0
}
