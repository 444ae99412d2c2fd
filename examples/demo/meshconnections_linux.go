// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// scenes returns the addresses of each family.
func (m *mesh) scenes() []meshScene {
	var scenes []meshScene
	for _, side := range m.scene.sides {
		of := func(p *ambientPod) netip.Addr {
			i := slices.IndexFunc(p.addresses, func(a netip.Prefix) bool { return a.Addr().Is4() == side.world.Is4() })
			return p.addresses[i].Addr()
		}
		scenes = append(scenes, meshScene{orders: of(m.pods[0]), stock: of(m.pods[1]), world: side.world})
	}
	return scenes
}

// connectEnrolled makes the connections while the pods are enrolled.
func (m *mesh) connectEnrolled(ctx context.Context) (string, error) {
	pods, _ := m.enrolled()
	detail := ""
	for _, p := range pods {
		if err := m.holds(ctx, p, p.plan); err != nil {
			return "", err
		}
		detail += fmt.Sprintf("%s has plan %s\n", p.name, p.plan.Fingerprint())
	}
	now, err := m.world(ctx, asPlanned)
	if err != nil {
		return "", err
	}
	m.group = "two pods in ambient mode, enrolled while they run (15001, 15006, 15008 and 15053 are the proxy's)"
	for _, s := range m.scenes() {
		for _, p := range append([]probe{s.captured("stock")}, s.enrolled()...) {
			if err := m.compare(ctx, p, &walk{world: now}); err != nil {
				return "", err
			}
		}
		if err := m.compare(ctx, s.before(), &walk{world: now, age: unseen}); err != nil {
			return "", err
		}
	}
	return detail, nil
}

// connectWithdrawn makes connections while the pods drain, and uses the older ones.
func (m *mesh) connectWithdrawn(ctx context.Context) (string, error) {
	now, err := m.world(ctx, (*interception.Plan).Draining)
	if err != nil {
		return "", err
	}
	earlier, err := m.world(ctx, asPlanned)
	if err != nil {
		return "", err
	}
	m.group = "the same two pods, withdrawn"
	for _, s := range m.scenes() {
		for _, p := range s.withdrawn() {
			if err := m.compare(ctx, p, &walk{world: now}); err != nil {
				return "", err
			}
		}
		if err := m.compare(ctx, s.captured("stock, opened when enrolled"), &walk{world: now, earlier: earlier, age: relayed}); err != nil {
			return "", err
		}
		if err := m.compare(ctx, s.before(), &walk{world: now, age: unseen}); err != nil {
			return "", err
		}
	}
	return "", nil
}

// compare adds a row with what the walk expects of a connection, and what the kernel does with it.
func (m *mesh) compare(ctx context.Context, p probe, w *walk) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.wiring = m.wiring()
	want, err := w.follow(trace.Packet{From: trace.Socket{Namespace: p.from}, Protocol: p.protocol(), Dst: p.destination})
	if err != nil {
		return err
	}
	m.reports += w.reports.String()
	got, err := m.connect(p)
	if err != nil {
		return err
	}
	if p.datagram { // the client's address does not matter
		want.client, got.client = netip.Addr{}, netip.Addr{}
	}
	m.table = append(m.table, row{group: m.group, probe: p, want: want, got: got})
	return m.node.note("traces", m.reports)
}

// connect opens a connection, or uses one that is open, and returns how that ended.
func (m *mesh) connect(p probe) (ending, error) {
	if p.datagram {
		return m.query(p)
	}
	from := m.workloadOf(p)
	o := order{Network: p.network(), Destination: p.destination, Connection: p.connection}
	if o.Connection == "" { // it is open while the sockets are looked at, and no longer
		o.Connection = p.String()
		defer func() {
			_, _ = from.order(order{Connection: o.Connection, Close: true}) // the next order fails, too
			delete(m.accepted, o.Connection)
		}()
	}
	before, err := m.sockets()
	if err != nil {
		return ending{}, err
	}
	r, err := from.order(o)
	if err != nil {
		return ending{}, err
	}
	after, err := m.sockets()
	if err != nil {
		return ending{}, err
	}
	if _, open := m.accepted[o.Connection]; !open {
		m.accepted[o.Connection] = newSockets(before, after, p.from)
	}
	return ending{
		listener: r.Answer.Listener, client: r.Answer.Client, failure: r.Failure, proxies: openPorts(m.accepted[o.Connection], after),
	}, nil
}

// query makes a query over UDP. Its sockets do not tell whether the proxy has it: the proxy does.
func (m *mesh) query(p probe) (ending, error) {
	before := m.proxy.Relayed()
	r, err := m.workloadOf(p).order(order{Network: p.network(), Destination: p.destination})
	e := ending{listener: r.Answer.Listener, client: r.Answer.Client, failure: r.Failure}
	if m.proxy.Relayed() > before {
		e.proxies = fmt.Sprint(ambient.IstioNumbers().DNSPort)
	}
	return e, err
}

// workloadOf returns the container that makes a connection. The node's is the world's, which has no
// network of its own.
func (m *mesh) workloadOf(p probe) *container {
	if p.from == nodeName {
		return m.containers[world]
	}
	return m.containers[p.from]
}

// acceptedSocket is a socket of a connection that the proxy has accepted in a pod.
type acceptedSocket struct {
	pod   string
	port  interception.Port // the listener's
	other netip.AddrPort
}

// newSockets returns those that were not there before, the connecting pod's first.
func newSockets(before, after []acceptedSocket, from string) []acceptedSocket {
	var first, others []acceptedSocket
	for _, s := range after {
		switch {
		case slices.Contains(before, s):
		case s.pod == from:
			first = append(first, s)
		default:
			others = append(others, s)
		}
	}
	return append(first, others...)
}

// openPorts returns the ports of the sockets of a connection that are still open.
func openPorts(of, open []acceptedSocket) string {
	var ports []string
	for _, s := range of {
		if slices.Contains(open, s) {
			ports = append(ports, fmt.Sprint(s.port))
		}
	}
	return strings.Join(ports, " → ")
}

// sockets returns those that the proxy has accepted in all pods, by the kernel (sock_diag(7)).
func (m *mesh) sockets() ([]acceptedSocket, error) {
	n := ambient.IstioNumbers()
	ports := []interception.Port{n.OutboundPort, n.InboundPort, n.TunnelPort}
	var all []acceptedSocket
	for _, p := range m.pods {
		err := p.netns.Do(func() error {
			for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
				found, err := netlink.SocketDiagTCP(family)
				if err != nil {
					return err
				}
				for _, s := range found {
					port := interception.Port(s.ID.SourcePort)
					if s.State != netlink.TCP_ESTABLISHED || !slices.Contains(ports, port) {
						continue
					}
					other, _ := netip.AddrFromSlice(s.ID.Destination) // the kernel's are addresses
					all = append(all, acceptedSocket{p.name, port, netip.AddrPortFrom(other.Unmap(), s.ID.DestinationPort)})
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look for the proxy's sockets in the pod %s: %w", p.name, err)
		}
	}
	return all, nil
}
