// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"

	"github.com/meshcni/meshcni/interception"
)

// NodeProxy is a stand-in for the proxy of a node that captures in its own network namespace. It
// follows no agent: the node sends it what it captures.
type NodeProxy struct {
	*service
	options NodeProxyOptions
	relayed atomic.Int64
}

// StartNodeProxy opens the proxy's listeners. It takes CAP_NET_ADMIN in the namespace, and the
// rights to enter it. The caller must close the proxy.
func StartNodeProxy(o NodeProxyOptions) (*NodeProxy, error) {
	if err := o.Numbers.Validate(); err != nil {
		return nil, err
	}
	var in *os.File
	where := "its own pod"
	if o.Netns != nil {
		in, where = o.Netns.File(), o.Netns.String()
	}
	p := &NodeProxy{options: o}
	p.service = newService(in, socketOptions{transparent: true}, o.Resolvers, &p.relayed)
	if err := p.listenEverywhere(); err != nil {
		p.close()
		return nil, fmt.Errorf("start a node's proxy in %s: %w", where, err)
	}
	return p, nil
}

func (p *NodeProxy) listenEverywhere() error {
	n := p.options.Numbers
	services := map[interception.Port]func(*net.TCPConn) error{}
	for port, relay := range map[interception.Port]func(from *net.TCPConn, to netip.AddrPort) error{
		n.OutboundPort: p.outbound, n.InboundPort: p.inbound, n.TunnelPort: p.tunnel,
	} {
		services[port] = func(from *net.TCPConn) error { return p.take(from, port, relay) }
	}
	if len(p.resolvers) == 0 {
		return p.open(services)
	}
	services[n.DNSPort] = p.resolve
	all, err := p.addresses()
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(all, func(a netip.Addr) bool { return a.IsLoopback() || a.IsLinkLocalUnicast() })
	if len(own) == 0 {
		return errors.New("there is no address at which to listen for queries: start the proxy when its pod has one")
	}
	if err := p.open(services); err != nil {
		return err
	}
	return p.listenForQueries(n.DNSPort, own...)
}

// Close ends the proxy with all its connections. It returns nil: the error is for [Instance].
func (p *NodeProxy) Close() error {
	p.close()
	return nil
}

// Drain closes all listeners, and waits until the connections have ended or the context has: then
// it cuts them off. The caller must close the proxy.
func (p *NodeProxy) Drain(ctx context.Context) {
	p.closeListeners()
	p.drain(ctx)
}

// Relayed returns how many connections and queries the proxy has begun to relay so far, also to
// destinations that have refused.
func (p *NodeProxy) Relayed() int { return int(p.relayed.Load()) }

// take relays a connection that has come to a port. What was sent to it has kept its destination:
// the connection's address on this side.
func (p *NodeProxy) take(from *net.TCPConn, port interception.Port, relay func(*net.TCPConn, netip.AddrPort) error) error {
	to := addressOf(from.LocalAddr())
	taken := Taken{Port: port, From: addressOf(from.RemoteAddr()), To: to}
	p.observe(taken, nil)
	err := p.refuseOwn(to)
	if err == nil {
		err = relay(from, to)
	}
	if err != nil {
		p.observe(taken, err)
	}
	return err
}

func (p *NodeProxy) observe(taken Taken, err error) {
	if p.options.Observe != nil {
		p.options.Observe(taken, err)
	}
}

// refuseOwn refuses a destination in the proxy's own pod, such as the address of a wire.
func (p *NodeProxy) refuseOwn(to netip.AddrPort) error {
	own, err := p.addresses()
	if err != nil {
		return err
	}
	if to.Addr().IsLoopback() || slices.Contains(own, to.Addr().WithZone("")) {
		return fmt.Errorf("%w: %s is an address of the proxy itself", ErrLoop, to)
	}
	return nil
}

// outbound relays a connection of a pod.
func (p *NodeProxy) outbound(from *net.TCPConn, to netip.AddrPort) error {
	if p.options.Tunnels != nil && p.options.Tunnels(to.Addr()) {
		return p.enterTunnel(from, to, p.options.Numbers.TunnelPort, p.asClient(from, to))
	}
	return p.inbound(from, to)
}

// inbound relays a connection to a pod.
func (p *NodeProxy) inbound(from *net.TCPConn, to netip.AddrPort) error {
	return p.forward(from, to, p.asClient(from, to))
}

// tunnel relays a connection from another proxy to the application that it is for.
func (p *NodeProxy) tunnel(from *net.TCPConn, to netip.AddrPort) (err error) {
	if port := p.options.TunnelsTo; port != 0 {
		to = netip.AddrPortFrom(to.Addr(), uint16(port))
	} else if to, err = leaveTunnel(from); err != nil {
		return err
	}
	return p.inbound(from, to)
}
