// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// mover is a node made of namespaces whose pods move from one form of capture to the other. The
// proxies of both forms are there.
type mover struct {
	t           *testing.T
	dir         string
	program     string
	source      *source
	node        *nodes.Node
	pods        []*nodes.Place
	own, remote *nodes.Place // own is the place of the proxy that the node's form has
	onNode      *nodes.Proxy
	inPod       *ambienttest.Proxy
	dataplane   string // a name of package choice, or legacy
}

// legacy makes a mover whose namespaces have rules of another program in iptables-legacy, so that
// the program takes that, too.
const legacy = "legacy"

// places returns all places of the node.
func (m *mover) places() []*nodes.Place {
	return append([]*nodes.Place{m.node.Host, m.own}, m.pods...)
}

func podUID(i int) string { return fmt.Sprintf("1c6b2f1e-9d3c-4f7a-8a51-00000000001%d", i) }

func newMover(t *testing.T, program, dataplane string) *mover {
	t.Helper()
	both := nodes.New(t)
	families := []interception.Family{interception.IPv4, interception.IPv6}
	m := &mover{t: t, node: both[0], remote: both[1].NewPod("remote", families...), dataplane: dataplane, program: program}
	m.own = m.node.NewPod(proxyUID, families...)
	objects := []ambient.Pod{{
		Pod:       interception.Pod{Namespace: "mesh", Name: "ztunnel-x", UID: proxyUID, Labels: map[string]string{"app": "ztunnel"}},
		Addresses: m.own.Addresses, Phase: "Running", Ready: true, Created: time.Unix(1, 0),
	}}
	for i := range 3 {
		place, pod := m.node.NewPod(podUID(i), families...), webPod()
		pod.UID, pod.Name, pod.Phase, pod.Addresses = podUID(i), fmt.Sprintf("web-%d", i), "Running", place.Addresses
		m.pods, objects = append(m.pods, place), append(objects, pod)
	}
	for _, place := range append([]*nodes.Place{m.remote}, m.pods...) {
		stop, err := place.Serve(8080)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	if dataplane == legacy {
		for _, place := range m.places() {
			for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
				sandboxtest.Run(t, place.Netns.File(), "", program, "-A", "OUTPUT", "-j", "ACCEPT")
			}
		}
	}
	m.onNode = m.own.StartProxy(t)
	m.dir, m.source = feedPods(t, objects...)
	var err error
	m.inPod, err = ambienttest.StartProxy(ambienttest.ProxyOptions{
		Socket: m.dir + "/proxy", Numbers: ambient.IstioNumbers(),
		Tunnels: func(to netip.Addr) bool {
			return slices.ContainsFunc(m.pods, func(pod *nodes.Place) bool { return slices.Contains(pod.Addresses, to) })
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.inPod.Close() }) // what it says of the agent's end is nothing
	return m
}

func (m *mover) begin(mode string) *process {
	m.t.Helper()
	dataplane := m.dataplane
	if dataplane == legacy {
		dataplane = choice.IPTables
	}
	p := begin(m.t, m.program, "-feed="+m.dir+"/feed", "-events="+m.dir+"/pluginevent.sock", "-proxy="+m.dir+"/proxy", "-journal="+m.dir+"/records",
		"-proc="+m.node.Roots().Proc, "-netns="+strings.Join(m.node.Roots().Netns, ","),
		`-settings={"proxyNamespace":"mesh","drainTimeout":"1m","mode":"`+mode+`","dataplane":"`+dataplane+`"}`)
	m.t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if m.t.Failed() {
			m.t.Logf("the program with mode %s says\n%s", mode, strings.Join(p.lines, "\n"))
		}
	})
	return p
}

// awaitCaptured waits until the program says that all pods are captured, and as wanted.
func (m *mover) awaitCaptured() {
	m.t.Helper()
	late := time.After(time.Minute)
	for {
		node, err := event.Pods(m.t.Context(), m.dir+"/pluginevent.sock", event.Selection{})
		captured := 0
		for _, pod := range node.Pods {
			if pod.Eligible && pod.Managed && pod.Step == "" && pod.Error == "" && pod.Status == "enabled" {
				captured++
			}
		}
		if captured == len(m.pods) {
			return
		}
		select {
		case <-late:
			m.t.Fatalf("not all pods are captured: %+v, %v", node, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// taken returns how many connections the proxies have taken.
func (m *mover) taken(onNode int) (sum, now int) {
	onNode += len(m.onNode.Takings())
	return onNode, onNode + m.inPod.Relayed()
}

// load opens connections of all pods, to and from them, one after the other, until the test calls
// stop: each comes to an end, and goes through a proxy. The node's own programs reach each pod past
// the proxies.
func (m *mover) load() (stop func()) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		onNode, before := m.taken(0)
		visit := func(from, to *nodes.Place, meshed bool) {
			for _, address := range to.Addresses {
				_, err := from.Visit(context.WithoutCancel(ctx), "tcp", netip.AddrPortFrom(address, 8080))
				var now int
				onNode, now = m.taken(onNode)
				if err != nil || (now > before) != meshed {
					m.t.Errorf("%s to %s: taken %d times, want that to be %t: %v", from.Name, address, now-before, meshed, err)
				}
				before = now
			}
		}
		for rounds := 0; rounds == 0 || ctx.Err() == nil; rounds++ {
			for _, pod := range m.pods {
				visit(pod, m.remote, true)
				visit(m.remote, pod, true)
				visit(m.node.Host, pod, false)
			}
			for i, pod := range m.pods {
				visit(pod, m.pods[(i+1)%len(m.pods)], true)
			}
		}
	})
	stop = func() {
		m.t.Helper()
		cancel()
		group.Wait()
	}
	m.t.Cleanup(stop) // a test that fails does not call it
	return stop
}

// rush opens connections between the pods, two hundred in a second, until the test calls stop,
// which returns how many they were.
func (m *mover) rush() (stop func() (opened int)) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	var group sync.WaitGroup
	opened := 0
	group.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for ; ctx.Err() == nil; opened++ {
			from, to := m.pods[opened%3], m.pods[(opened+1+opened/3%2)%3]
			address := to.Addresses[opened/6%len(to.Addresses)]
			group.Go(func() {
				if _, err := from.Visit(context.WithoutCancel(ctx), "tcp", netip.AddrPortFrom(address, 8080)); err != nil {
					m.t.Error(err)
				}
			})
			<-ticker.C
		}
	})
	stop = func() int {
		m.t.Helper()
		cancel()
		group.Wait()
		return opened
	}
	m.t.Cleanup(func() { stop() }) // a test that fails does not call it
	return stop
}

// sentAgain returns how many packets that open a connection, or accept one, were sent again in all
// places (TCPSynRetrans in linux/snmp.h).
func (m *mover) sentAgain() (sum int) {
	m.t.Helper()
	for _, place := range m.places() {
		var lines []string
		if err := namespace.Run(place.Netns.File(), func() error {
			text, err := os.ReadFile("/proc/thread-self/net/netstat")
			lines = strings.Split(string(text), "\n")
			return err
		}); err != nil {
			m.t.Fatal(err)
		}
		names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
		number, err := strconv.Atoi(values[slices.Index(names, "TCPSynRetrans")])
		if err != nil {
			m.t.Fatal(err)
		}
		sum += number
	}
	return sum
}

// echo runs a program in a place that answers all that it is told.
func (m *mover) echo(in *nodes.Place) netip.AddrPort {
	m.t.Helper()
	var listener net.Listener
	err := namespace.Run(in.Netns.File(), func() (err error) {
		listener, err = new(net.ListenConfig).Listen(m.t.Context(), "tcp4", ":9090")
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = listener.Close() }) // nothing was written
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn) // the client notices
				_ = conn.Close()
			}()
		}
	}()
	return netip.AddrPortFrom(in.Addresses[0], 9090)
}

// connect opens a connection from each pod to the remote place, and one to each pod from there.
func (m *mover) connect() (all []net.Conn) {
	m.t.Helper()
	open := func(from *nodes.Place, to netip.AddrPort) {
		m.t.Helper()
		if err := namespace.Run(from.Netns.File(), func() error {
			conn, err := new(net.Dialer).DialContext(m.t.Context(), "tcp4", to.String())
			all = append(all, conn)
			return err
		}); err != nil {
			m.t.Fatal(err)
		}
	}
	outside := m.echo(m.remote)
	for _, pod := range m.pods {
		open(pod, outside)
		open(m.remote, m.echo(pod))
	}
	m.speak(all)
	return all
}

// speak tests that connections live.
func (m *mover) speak(all []net.Conn) {
	m.t.Helper()
	for _, conn := range all {
		answer := make([]byte, 5)
		err := conn.SetDeadline(time.Now().Add(time.Minute))
		if err == nil {
			_, err = conn.Write([]byte("hello"))
		}
		if err == nil {
			_, err = io.ReadFull(conn, answer)
		}
		if err != nil || string(answer) != "hello" {
			m.t.Errorf("the connection from %s to %s: %q, %v", conn.LocalAddr(), conn.RemoteAddr(), answer, err)
		}
	}
}

// close closes connections.
func (m *mover) close(all []net.Conn) {
	m.t.Helper()
	for _, conn := range all {
		if err := conn.Close(); err != nil {
			m.t.Error(err)
		}
	}
}

// observe returns what an owner has in a namespace.
func (m *mover) observe(in *nodes.Place, owner interception.Owner) interception.State {
	m.t.Helper()
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	var dataplane *choice.Dataplane
	if err == nil {
		dataplane, err = choice.New(candidates...)
	}
	var state interception.State
	if err == nil {
		state, err = dataplane.Observe(m.t.Context(), in.Netns, owner)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return state
}

// statuses returns those that the source was asked for.
func (m *mover) statuses() (all []ambient.Status) {
	for len(m.source.statuses) > 0 {
		all = append(all, <-m.source.statuses)
	}
	return all
}

// listRules lists what a namespace has, but for the members of sets and the marks of programs of
// iptables that have looked: chains without rules.
const listRules = `
for program in iptables-legacy-save ip6tables-legacy-save iptables-nft-save ip6tables-nft-save; do
	for again in 1 2 3 4 5 6 7 8 9; do out=$($program) && break; done # it fails where a set goes meanwhile
	printf '%s\n' "$out" | sed -n 's/^-[AN]/'$program' &/p'
done
nft --stateless --terse list ruleset inet
ip rule; ip -6 rule
ip route show table all | { grep -v 'proto kernel' || true; }; ip -6 route show table all | { grep -v 'proto kernel' || true; }
ip -br link | sed 's/[@ ].*//' | sort; ip -o address show scope global | awk '{print $2, $3, $4}' | sort
sysctl -a -r 'net\.ipv[46]\.conf\..*\.\(rp_filter\|forwarding\|accept_local\|route_localnet\|src_valid_mark\)'`

// dump returns all that the node's places have, and the files about it.
func (m *mover) dump() string {
	m.t.Helper()
	var all strings.Builder
	for _, place := range m.places() {
		fmt.Fprintln(&all, place.Name)
		all.WriteString(sandboxtest.Run(m.t, place.Netns.File(), "", "sh", "-ec", listRules))
		sets, err := ipset.Dial(kernel.Of(place.Netns.File()))
		if err != nil {
			m.t.Fatal(err)
		}
		names, err := sets.Names()
		if err := errors.Join(err, sets.Close()); err != nil {
			m.t.Fatal(err)
		}
		slices.Sort(names)
		fmt.Fprintln(&all, names)
		for _, owner := range ambientconf.Owners() {
			fmt.Fprintln(&all, owner, m.observe(place, owner).Owners)
		}
	}
	records, err := journal.Journal{Directory: m.dir + "/records"}.Attachments()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, one := range records {
		fmt.Fprintln(&all, "record of", one.ContainerID)
	}
	if _, err := os.Lstat(m.dir + "/records.node.json"); !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(&all, "file about the node's proxies", err)
	}
	return all.String()
}

// awaitDump waits until the node has nothing else than this.
func (m *mover) awaitDump(want string) {
	m.t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		got := m.dump()
		if got == want {
			return
		}
		if time.Now().After(late) {
			m.t.Fatalf("other things are there (-want +got):\n%s", cmp.Diff(want, got))
		}
	}
}
