// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/originaldst"
)

// pod is what the proxy does in one pod's namespace.
type pod struct {
	*service
	options ProxyOptions
	numbers ambient.Numbers // those of the options
}

// open opens the listeners. It takes over the namespace, and closes it on an error.
func open(in *os.File, o ProxyOptions, relayed *atomic.Int64) (*pod, error) {
	n := o.Numbers
	sockets := socketOptions{mark: n.ProxyMark.Value, shared: true, transparent: o.Transparent}
	p := &pod{service: newService(in, sockets, o.Resolvers, relayed), options: o, numbers: n}
	services := map[interception.Port]func(*net.TCPConn) error{n.OutboundPort: p.outbound, n.InboundPort: p.inbound, n.TunnelPort: p.tunnel}
	if len(o.Resolvers) > 0 {
		services[n.DNSPort] = p.resolve
	}
	err := p.open(services)
	if err == nil && len(o.Resolvers) > 0 {
		err = p.listenForQueries(n.DNSPort, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// close ends all listeners and connections.
func (p *pod) close() {
	p.service.close()
	_ = p.namespace.Close() // nothing was written
}

// isIn reports whether the pod is in a namespace.
func (p *pod) isIn(other *os.File) bool {
	own, err := p.namespace.Stat()
	theirs, err2 := other.Stat()
	return err == nil && err2 == nil && os.SameFile(own, theirs)
}

// outbound relays a connection of the pod to where it was going.
func (p *pod) outbound(from *net.TCPConn) error {
	to, err := p.destination(from)
	if err != nil {
		return err
	}
	if to.Addr().IsLoopback() {
		return fmt.Errorf("%w: %s is loopback", ErrLoop, to)
	}
	if p.options.Tunnels != nil && p.options.Tunnels(to.Addr()) {
		// The proxy of the destination listens at the destination's own address (hbone_port of
		// src/proxy/outbound.rs at 3b80cf3, which is inbound_addr of src/config.rs at 284160d).
		return p.enterTunnel(from, to, p.numbers.TunnelPort, p.plain())
	}
	return p.forward(from, to, p.plain())
}

// errStrict means that a connection came without a tunnel.
var errStrict = errors.New("connections without a tunnel are refused")

// inbound relays a connection to the pod, with the client's address.
func (p *pod) inbound(from *net.TCPConn) error {
	if p.options.Strict {
		return errStrict
	}
	to, err := p.destination(from)
	if err != nil {
		return err
	}
	return p.forward(from, to, p.asClient(from, to))
}

// tunnel relays a connection from another proxy to the application that it is for. A port of the
// proxy itself is refused (find_inbound_upstream of src/proxy/inbound.rs at 75c2d62).
func (p *pod) tunnel(from *net.TCPConn) error {
	to, err := leaveTunnel(from)
	if err != nil {
		return err
	}
	if p.isOwn(to) {
		return fmt.Errorf("%w: %s is a port of the proxy", ErrLoop, to)
	}
	return p.forward(from, to, p.asClient(from, to))
}

// destination returns where a connection was going before the redirect.
func (p *pod) destination(from *net.TCPConn) (netip.AddrPort, error) {
	to, err := originaldst.Of(from)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if !to.IsValid() { // TPROXY translates nothing
		to = addressOf(from.LocalAddr())
	}
	if p.isOwn(to) {
		return netip.AddrPort{}, fmt.Errorf("%w: %s is a port of the proxy", ErrLoop, to)
	}
	return to, nil
}

// isOwn reports whether a destination has a port of the proxy's listeners for connections.
func (p *pod) isOwn(to netip.AddrPort) bool {
	switch interception.Port(to.Port()) {
	case p.numbers.OutboundPort, p.numbers.InboundPort, p.numbers.TunnelPort:
		return true
	}
	return false
}
