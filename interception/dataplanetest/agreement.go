// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// AgreementOptions limit what [Agree] tries. The zero value tries two thousand pairs, the same ones
// each time.
type AgreementOptions struct {
	// Seed starts the random redirects. A failure names the seed of its redirect: with this seed
	// and Pairs of 1, only that redirect is tried again.
	Seed uint64
	// Pairs is the minimum number of pairs of redirect and packet; zero means 2000.
	Pairs int
}

// packetsPerRedirect is how many packets go through each redirect's pod, all at once, and the
// maximum number of older connections.
const (
	packetsPerRedirect     = 25
	connectionsPerRedirect = 5
)

// Agree tests that a dataplane treats real packets as package trace predicts. It plans random
// redirects of all kinds ([sidecar.Plan]), applies each to a pod, and sends random packets through
// it, most of them at the edges of the redirect: TCP and UDP, IPv4 and IPv6, out, in and within the
// pod, by the application, by the proxy, by the proxy with its clients' addresses, and by a machine
// at a link that is rerouted or excluded. It compares as [Pod.Compare] does, and as
// [Pod.CompareLiving] for older connections. Its package needs a TestMain that calls [RunTests].
func Agree(t *testing.T, d interception.Dataplane, o AgreementOptions) {
	t.Helper()
	o.Pairs = cmp.Or(o.Pairs, 2000)
	kinds := newCounts()
	t.Run("redirects", func(t *testing.T) {
		for i := range (o.Pairs + packetsPerRedirect - 1) / packetsPerRedirect {
			seed := o.Seed + uint64(i)
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				t.Parallel()
				agreeOn(t, d, seed, kinds)
			})
		}
	})
	kinds.expect(t)
	t.Logf("%d pairs of redirect and packet, by kind:%s", kinds.all(), kinds.String())
}

// expect fails the test if a large number of pairs lacks an essential kind.
func (c *counts) expect(t *testing.T) {
	t.Helper()
	if c.all() < 2000 {
		return
	}
	for _, mode := range []sidecar.Mode{sidecar.ModeRedirect, sidecar.ModeTProxy} {
		for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			for _, kind := range []string{
				"tcp from outside, to the inbound port", "tcp from outside, to the application", "tcp from outside, refused",
				"tcp from the application, to the outbound port", "tcp from the application, sent", "tcp from the application, to the application",
				"tcp from the proxy, to the inbound port", "tcp from the proxy, sent", "tcp in a client's name, to the application",
				"udp from the application, to the resolver", "udp from the application, sent", "udp from the proxy, sent",
				"udp from outside, to the application",
				"tcp from the excluded machine, sent", "tcp from the rerouted machine, sent",
				"tcp from the rerouted machine, to the outbound port",
				"older connection from elsewhere, spared: alive", "older connection from pod, spared: alive",
				"older connection from elsewhere, captured: broken", "older connection from pod, captured: broken",
			} {
				if name := fmt.Sprintf("%s %s %s", mode, family, kind); c.of[name] == 0 {
					t.Errorf("no pair of the kind %q: these packets test too little", name)
				}
			}
		}
	}
}

// agreeOn sends random packets through the pod of a random redirect.
func agreeOn(t *testing.T, d interception.Dataplane, seed uint64, kinds *counts) {
	t.Helper()
	choose := sample.Seeded(seed)
	from := sample.Pod{Redirect: sample.Redirect(choose), Addresses: []netip.Addr{
		netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2"),
		netip.MustParseAddr("10.244.7.7"), netip.MustParseAddr("fd00:10:244:7::7"),
	}[:sample.Pick(choose, 2, 4)]}
	if i := from.Redirect.Interfaces; i.Reroute.Contains(sample.MachineLink) || i.Exclude.Contains(sample.MachineLink) {
		from.Machine = Machine()
	}
	plan, err := sidecar.Plan(from.Redirect, interception.Facts{IPv6: choose(5) > 0}, "random-mesh")
	if err != nil {
		t.Fatal(err)
	}
	pod := sidecarPod(t, from)
	living := livingConnections(t, pod, from, choose)
	if err := pod.Apply(t.Context(), d, plan); err != nil {
		t.Fatal(err)
	}
	for address := range interception.ObjectsOf[interception.Address](plan) {
		from.Loopback = append(from.Loopback, address.Prefix.Addr())
	}
	world, err := pod.World(plan)
	if err != nil {
		t.Fatal(err)
	}
	a := agreement{t, pod, world, from.Redirect, seed, kinds}
	var group sync.WaitGroup
	for range packetsPerRedirect {
		packet := from.Packet(choose)
		group.Go(func() { a.onPacket(packet) })
	}
	for _, connection := range living {
		first := sample.Pick(choose, Opener, Taker)
		group.Go(func() { a.onConnection(connection, first) })
	}
	group.Wait()
	if t.Failed() {
		t.Logf("seed %d: %s", seed, plan)
	}
}

// agreement is a pod of a random redirect, and its model in package trace.
type agreement struct {
	*testing.T
	pod      *Pod
	world    trace.World
	redirect sidecar.Redirect
	seed     uint64
	kinds    *counts
}

func (a agreement) onPacket(packet trace.Packet) {
	c, err := a.pod.Compare(a.Context(), a.world, packet)
	switch {
	case errors.Is(err, ErrNeedsSecondUID):
		a.Skip(err)
	case err != nil:
		a.Errorf("seed %d: %v", a.seed, err)
	case c.Disagreement != "":
		a.Errorf("seed %d: %s", a.seed, c.Report())
	case c.Probe.From == InMachine && c.Expected[0].Verdict == trace.Sent && !c.Observed.Answered:
		a.Errorf("seed %d: the machine should hear an answer: %s", a.seed, c.Report())
	default:
		a.kinds.add(kindOf(a.redirect, c))
	}
}

func (a agreement) onConnection(connection *Connection, first Side) {
	c, err := a.pod.CompareLiving(a.Context(), a.world, connection, first)
	switch {
	case err != nil:
		a.Errorf("seed %d: %v", a.seed, err)
	case c.Disagreement != "":
		a.Errorf("seed %d: %s speaks first: %s", a.seed, first, c.Report())
	case a.redirect.Existing == sidecar.ExistingSpare && c.Observed.Verdict != Accepted:
		a.Errorf("seed %d: %s speaks first, and the connection should be spared: %s", a.seed, first, c.Report())
	default:
		a.kinds.add(livingKind(a.redirect, c))
	}
}

// livingConnections opens connections before anything is applied.
func livingConnections(t *testing.T, pod *Pod, from sample.Pod, choose sample.Choices) []*Connection {
	t.Helper()
	world, err := pod.World(nil)
	if err != nil {
		t.Fatal(err)
	}
	var living []*Connection
	for range 4 * connectionsPerRedirect {
		packet := from.Packet(choose)
		expected, err := pod.conversation(world, packet)
		if err != nil {
			t.Fatal(err)
		}
		// The proxy's own sockets are transparent, and TPROXY may hand their connections to them:
		// only the application's connections count.
		lasts := packet.Protocol == interception.ProtocolTCP && len(expected) == 4 && !expected[0].Listener.Proxy
		if !lasts || len(living) == connectionsPerRedirect {
			continue
		}
		living = append(living, connect(t, pod, probeOf(packet)))
	}
	return living
}

// connect opens a connection for a test, and closes it at the test's end.
func connect(t *testing.T, pod *Pod, probe Probe) *Connection {
	t.Helper()
	connection, err := pod.Connect(t.Context(), probe)
	if errors.Is(err, ErrNeedsSecondUID) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() }) // a broken connection may fail to close
	return connection
}

// sidecarPod creates a pod in which application and proxy listen.
func sidecarPod(t *testing.T, from sample.Pod) *Pod {
	t.Helper()
	o := PodOptions{Addresses: from.Addresses, Ports: []uint16{53, 80, 8080}}
	if len(from.Machine) > 0 {
		o.MachineLink = string(sample.MachineLink)
	}
	proxy := from.Redirect.Proxy
	for _, port := range []interception.Port{proxy.OutboundPort, proxy.InboundPort, proxy.TunnelPort, from.Redirect.DNS.Port} {
		if port != 0 {
			o.ProxyPorts = append(o.ProxyPorts, uint16(port))
		}
	}
	uid, gid := from.Owner()
	o.ProxyUID, o.ProxyGID = uint32(uid), uint32(gid)
	return NewPod(t, o)
}

// kindOf returns the kind that a comparison counts for.
func kindOf(r sidecar.Redirect, c Comparison) string {
	first := c.Expected[0]
	way := "from the application"
	uid, gid := interception.UID(c.Probe.UID), interception.GID(c.Probe.GID)
	switch arrival, arrives := first.Packet.From.(trace.Arrival); {
	case arrives && arrival.Link == sample.MachineLink:
		way = machineWay(r)
	case arrives:
		way = "from outside"
	case c.Probe.Transparent:
		way = "in a client's name"
	case r.Proxy.UIDs.Contains(uid) || r.Proxy.GIDs.Contains(gid):
		way = "from the proxy"
	}
	end := first.Verdict.String()
	if first.Verdict == trace.Delivered {
		switch first.Listener.Port {
		case r.Proxy.OutboundPort:
			end = "to the outbound port"
		case r.Proxy.InboundPort:
			end = "to the inbound port"
		case r.DNS.Port:
			end = "to the resolver"
		default:
			end = "to the application"
		}
	}
	family := interception.FamilyOf(first.Packet.Dst.Addr())
	return fmt.Sprintf("%s %s %s %s, %s", r.Mode, family, first.Packet.Protocol, way, end)
}

// machineWay returns where a packet of the machine comes from.
func machineWay(r sidecar.Redirect) string {
	if r.Interfaces.Exclude.Contains(sample.MachineLink) {
		return "from the excluded machine"
	}
	return "from the rerouted machine"
}

// livingKind returns the kind that an older connection counts for.
func livingKind(r sidecar.Redirect, c Comparison) string {
	existing, end := "captured", "broken"
	if r.Existing == sidecar.ExistingSpare {
		existing = "spared"
	}
	if c.Observed.Verdict == Accepted {
		end = "alive"
	}
	return fmt.Sprintf("%s %s older connection from %s, %s: %s", r.Mode, interception.FamilyOf(c.Probe.Dst.Addr()), c.Probe.From, existing, end)
}

// counts has the number of things of each kind, for several goroutines.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func newCounts() *counts { return &counts{of: map[string]int{}} }

func (c *counts) add(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[kind]++
}

func (c *counts) all() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, n := range c.of {
		sum += n
	}
	return sum
}

// String returns a line for each kind.
func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := ""
	for _, kind := range slices.Sorted(maps.Keys(c.of)) {
		text += fmt.Sprintf("\n%6d %s", c.of[kind], kind)
	}
	return text
}
