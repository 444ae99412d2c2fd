// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// pod is a pod of the node, with an application and its clients.
type pod struct {
	*interception.Netns
	node      *node
	name, uid string
	slot      int // of its addresses
	addresses []netip.Addr
	namespace *sandbox.Namespace
	stop      func() // ends its application and clients
	others    *foreign

	meshed bool // it has to be enrolled
	// relabelled reports that this has changed during its ADD.
	relabelled bool
	// witnessed is what the witness had counted when the pod was enrolled; empty while it may make
	// connections uncaptured.
	witnessed string
}

const (
	podNamespace = "shop"
	modeLabel    = "istio.io/dataplane-mode"
	statusKey    = "ambient.istio.io/redirection"
	port         = 8080
)

// create makes a pod: one that the plugin hands over, one that is found when it is labelled later,
// or one that is not of the mesh yet.
func (n *node) create() {
	n.t.Helper()
	n.created++
	slot := n.freeSlot()
	p := &pod{
		node: n, slot: slot, name: fmt.Sprintf("web-%d", n.created),
		uid: fmt.Sprintf("1c6b2f1e-9d3c-4f7a-8a51-%012d", n.created), addresses: []netip.Addr{end(4, slot, 1).Addr(), end(6, slot, 1).Addr()},
	}
	n.pods = append(n.pods, p)
	p.connect()
	p.others = n.newForeign(p.namespace, witness)
	object := fakecluster.Pod{Namespace: podNamespace, Name: p.name, UID: p.uid, Node: nodeName, NoSidecar: true, Addresses: []string{""}, Phase: "Pending"}
	if p.meshed = n.random.IntN(3) > 0; p.meshed {
		object.Labels = map[string]string{modeLabel: "ambient"}
	}
	n.cluster.Put(object)
	if p.meshed {
		n.adding++
		go func() { n.added <- p.add(n.t.Context()) }()
		return
	}
	p.run()
}

// finishADD takes over the answer to an ADD, and starts the pod's application.
func (n *node) finishADD(answer addition) {
	n.t.Helper()
	n.adding--
	p := answer.pod
	switch {
	case answer.captured && !p.relabelled:
		p.witnessed = p.leaks()
	case !p.relabelled:
		n.t.Errorf("%s is of the mesh, and its ADD returns without it", p.name)
	}
	p.relabelled = false
	p.run()
}

// freeSlot returns a slot that no pod has. It is used again as soon as possible: addresses are.
func (n *node) freeSlot() int {
	taken := map[int]bool{}
	for _, p := range n.pods {
		taken[p.slot] = true
	}
	for slot := 1; ; slot++ {
		if !taken[slot] {
			return slot
		}
	}
}

// end returns the address of an end of a pod's wire: 0 is the host's, and 1 the pod's. Slot 0 is
// the wire to the rest of the world.
func end(family, slot, end int) netip.Prefix {
	low, high := byte(slot*4+end+1), byte(slot>>6)
	if family == 4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, high, low}), 30)
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x00, 2: 0x02, 3: 0x44, 14: high, 15: low}), 126)
}

func hostLink(slot int) string { return fmt.Sprintf("veth%d", slot) }

// connect makes the pod's network, as the plugins before ours do, and libcni's record of it.
func (p *pod) connect() {
	n := p.node
	n.t.Helper()
	var err error
	p.namespace, err = sandbox.NewNamespace(filepath.Join(n.tree.Roots.Netns[1], p.name))
	n.must(err)
	n.wire(p.namespace, p.slot)
	p.Netns, err = interception.OpenNetns(p.namespace.Path(), interception.NetnsOptions{})
	n.must(err)
	entry, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": p.name, "ifName": "eth0", "networkName": "pods", "netns": "/var/run/netns/" + p.name,
		"cniArgs": [][2]string{{"K8S_POD_NAMESPACE", podNamespace}, {"K8S_POD_NAME", p.name}, {"K8S_POD_UID", p.uid}},
	})
	n.must(err)
	n.must(os.WriteFile(p.record(), entry, 0o600))
}

func (p *pod) record() string {
	return filepath.Join(p.node.tree.Roots.Results, "pods-"+p.name+"-eth0")
}

// wire connects a namespace with the host, which routes.
func (n *node) wire(to *sandbox.Namespace, slot int) {
	n.t.Helper()
	n.must(sandbox.Connect(n.t.Context(), sandbox.End{Namespace: to, Name: "eth0"}, sandbox.End{Namespace: n.host, Name: hostLink(slot)}))
	for _, family := range []int{4, 6} {
		n.must(n.host.AddAddress(n.t.Context(), hostLink(slot), end(family, slot, 0)))
		n.must(to.AddAddress(n.t.Context(), "eth0", end(family, slot, 1)))
		n.must(to.Netlink().RouteAdd(&netlink.Route{Gw: end(family, slot, 0).Addr().AsSlice()}))
	}
}

// witness is a table of another program. It counts connections that begin here, or come from
// elsewhere to the application, and that the mesh's rules have left alone. The proxy's own
// connections have its mark, and what is captured never leaves by eth0, or arrives at another port.
// Later than those rules, it sees what they did.
const witness = `table inet foreign {
	counter out { }
	counter in { }
	chain out {
		type filter hook postrouting priority 300; policy accept;
		oifname "eth0" tcp flags & (syn | ack) == syn meta mark & 0xfff != 0x539 counter name "out"
	}
	chain in {
		type filter hook input priority 300; policy accept;
		iifname "eth0" tcp dport 8080 tcp flags & (syn | ack) == syn counter name "in"
	}
}
`

// leaks returns what the witness has counted.
func (p *pod) leaks() string { return p.others.counted() }

// judge tests that no connection has passed uncaptured since the pod was enrolled, and that what
// another program has there is as it was.
func (p *pod) judge() {
	p.node.t.Helper()
	if now := p.leaks(); p.witnessed != "" && now != p.witnessed {
		p.node.t.Errorf("%s was enrolled, and its witness counts %s (of those that leave and that come), after %s", p.name, now, p.witnessed)
		p.witnessed = now
	}
	if err := p.others.right(); err != nil {
		p.node.t.Errorf("%s: %v", p.name, err)
	}
}

// release lets the pod make connections uncaptured, until it is enrolled again.
func (p *pod) release() {
	p.node.t.Helper()
	p.judge()
	p.witnessed = ""
}

// addition is the answer to an ADD.
type addition struct {
	pod      *pod
	captured bool
}

// add hands the pod over as the plugin does, again and again, as the kubelet does.
func (p *pod) add(ctx context.Context) addition {
	for ctx.Err() == nil {
		decision, err := p.addOnce(ctx)
		if err == nil {
			p.node.log.Tell()
			return addition{p, decision.Capture}
		}
		p.node.refused.Store(fmt.Sprintf("%s: %v", p.name, err))
		<-afterFailure(ctx, err)
	}
	return addition{pod: p}
}

func (p *pod) addOnce(ctx context.Context) (interception.Decision, error) {
	file, err := os.Open(p.namespace.Path())
	if err != nil {
		return interception.Decision{}, err
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return event.Enrol(ctx, filepath.Join(p.node.path("run"), "pluginevent.sock"), event.Pod{Namespace: podNamespace, Name: p.name, UID: p.uid, Addresses: p.addresses}, file)
}

// afterFailure returns a channel that is ready at once, or a tenth of a second after a failure.
func afterFailure(ctx context.Context, err error) <-chan struct{} {
	if err == nil {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx.Done()
	}
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}

// run starts the pod's application, and clients in and of the pod, one for each family.
func (p *pod) run() {
	n := p.node
	n.t.Helper()
	n.cluster.Change(podNamespace, p.name, func(o *fakecluster.Pod) {
		o.Phase, o.Addresses = "Running", []string{p.addresses[0].String(), p.addresses[1].String()}
	})
	var listener net.Listener
	n.must(p.namespace.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(n.t.Context(), "tcp", fmt.Sprintf("[::]:%d", port))
		return err
	}))
	ctx, cancel := context.WithCancel(n.t.Context())
	var working sync.WaitGroup
	working.Go(func() { greet(listener) })
	for family := range 2 {
		working.Go(func() {
			for ctx.Err() == nil {
				n.call(ctx, p.namespace, n.worldAddresses()[family])
				n.call(ctx, n.world, p.addresses[family])
			}
		})
	}
	p.stop = func() {
		cancel()
		_ = listener.Close() // nothing was written
		working.Wait()
	}
}

// greet says a word to each client.
func greet(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = io.WriteString(conn, "hello") // the client notices
			_ = conn.Close()
		}
	}
}

// call makes a connection, and then waits a moment, so that the machine has time for its work.
func (n *node) call(ctx context.Context, from *sandbox.Namespace, to netip.Addr) {
	n.made.Add(1)
	if err := visit(ctx, from, to); err != nil && ctx.Err() == nil {
		n.failed.Add(1)
	}
	pause, cancel := context.WithTimeout(ctx, time.Duration(*count)*10*time.Millisecond)
	defer cancel()
	<-pause.Done()
}

// visit makes a connection, and tells whether the application has answered.
func visit(ctx context.Context, from *sandbox.Namespace, to netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var conn net.Conn
	err := from.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(to, port).String())
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if text, err := io.ReadAll(conn); err != nil || string(text) != "hello" {
		return fmt.Errorf("%q, %w", text, err)
	}
	return nil
}

// label adds the pod to the mesh, or takes it out.
func (p *pod) label(meshed bool) {
	p.release()
	p.meshed, p.relabelled = meshed, p.stop == nil
	p.node.cluster.Change(podNamespace, p.name, func(o *fakecluster.Pod) {
		o.Labels = map[string]string{modeLabel: map[bool]string{true: "ambient", false: "none"}[meshed]}
	})
}

// remove removes a pod, as kubelet and runtime do.
func (n *node) remove(p *pod) {
	n.t.Helper()
	p.stop()
	p.judge()
	n.must(os.Remove(p.record()))
	link, err := n.host.Netlink().LinkByName(hostLink(p.slot))
	n.must(err)
	n.must(n.host.Netlink().LinkDel(link))
	n.must(p.Close())
	n.must(p.namespace.Close())
	n.cluster.Delete(podNamespace, p.name)
	for i := range n.pods {
		if n.pods[i] == p {
			n.pods = append(n.pods[:i], n.pods[i+1:]...)
			return
		}
	}
}
