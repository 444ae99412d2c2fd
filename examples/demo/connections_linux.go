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

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// startContainers starts the programs that make and take connections.
func (d *demonstration) startContainers(ctx context.Context) (string, error) {
	d.containers = map[string]*container{}
	detail, err := d.chooseIdentities()
	if err != nil {
		return "", err
	}
	for name, as := range map[string]*identity{application: d.playable(d.scene.application), proxy: d.playable(d.scene.proxy)} {
		o := containerOptions{as: as, within: d.netns.Do, listeners: onAllAddresses(d.scene.listeners(), name, d.ipv6)}
		if err := d.startContainer(ctx, name, o); err != nil {
			return "", err
		}
	}
	sockets, err := d.makeWorld()
	if err != nil {
		return "", err
	}
	return detail, d.startContainer(ctx, world, containerOptions{
		within: func(f func() error) error { return f() }, listeners: sockets,
	})
}

func (d *demonstration) startContainer(ctx context.Context, name string, o containerOptions) (err error) {
	if o.log, err = d.openLog(name); err != nil {
		return err
	}
	o.self = d.self
	c, err := startContainer(ctx, name, o)
	if err != nil {
		return err
	}
	d.containers[name] = c
	d.later(c.stop)
	return nil
}

// chooseIdentities picks the user and group of each program, and returns what cannot be shown.
func (d *demonstration) chooseIdentities() (string, error) {
	exists, err := d.scene.application.exists()
	if err != nil {
		return "", err
	}
	var detail string
	if !exists {
		detail = fmt.Sprintf("the application runs as root: %s doesn't exist here\n", d.scene.application)
		d.scene.application = identity{}
	}
	if exists, err = d.scene.proxy.exists(); err != nil {
		return "", err
	}
	if !exists {
		d.unplayable = fmt.Sprintf("needs %s", d.scene.proxy)
		if d.info.SingleID {
			d.unplayable = "needs a second uid"
		}
	}
	return detail + fmt.Sprintf("application: %s; proxy: %s", d.scene.application, d.scene.proxy), nil
}

// playable returns the identity to change to; nil if it cannot be used here, or if no change is
// needed.
func (d *demonstration) playable(i identity) *identity {
	if i == d.scene.proxy && d.unplayable != "" || i == (identity{}) {
		return nil
	}
	return &i
}

// makeWorld adds addresses to the node that stand for the outside world, and returns the sockets
// that listen on them.
func (d *demonstration) makeWorld() ([]socketAddress, error) {
	var sockets []socketAddress
	var known []netip.Addr
	for _, side := range d.scene.sides {
		resolver := probe{destination: netip.AddrPortFrom(side.world, uint16(dnsPort)), datagram: true} // of ambient mode
		for _, p := range append(d.scene.outbound(side), resolver) {
			to := p.destination
			if !slices.Contains(known, to.Addr()) {
				known = append(known, to.Addr())
				if err := addToLoopback(to.Addr()); err != nil {
					return nil, err
				}
			}
			socket := socketAt(listenerOf(world, p.protocol(), interception.Port(to.Port())), to.Addr())
			if !slices.Contains(sockets, socket) {
				sockets = append(sockets, socket)
			}
		}
	}
	return sockets, nil
}

// addToLoopback adds an address to the node's loopback interface, usable at once.
func addToLoopback(address netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		added := &netlink.Addr{IPNet: sandbox.IPNet(netip.PrefixFrom(address, address.BitLen()))}
		if address.Is6() {
			added.Flags = unix.IFA_F_NODAD
		}
		err = netlink.AddrReplace(lo, added)
	}
	if err != nil {
		return fmt.Errorf("give the node the address %s: %w", address, err)
	}
	return nil
}

// makeConnections fills the table with what is expected of each connection and what the kernel does
// with it.
func (d *demonstration) makeConnections(ctx context.Context) (string, error) {
	var waits []string // notes on connections that took long
	for _, p := range d.scene.probes() {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		outcome, err := d.expect(d.traceWorld(), d.scene.packet(p))
		if err != nil {
			return "", err
		}
		d.reports += outcome.Report() + "\n"
		r := row{group: "pod " + d.pod.Namespace + "/" + d.pod.Name, probe: p, want: expectationOf(outcome)}
		if p.datagram {
			r.want.original = netip.AddrPort{} // a UDP socket does not learn it
		}
		if p.from == proxy && d.unplayable != "" {
			r.skipped = d.unplayable
		} else if r.got, err = d.containers[p.from].connect(p); err != nil {
			return "", err
		}
		if r.got.failure == unanswered {
			waits = append(waits, fmt.Sprintf("%s (%s): no answer in %s", p, p.destination, patience))
		}
		d.table = append(d.table, r)
	}
	return strings.Join(waits, "\n"), d.node.note("traces", d.reports)
}

// traceWorld returns the pod in package trace's terms.
func (d *demonstration) traceWorld() trace.World {
	o := trace.SidecarOptions{Listeners: d.scene.listeners()}
	for _, side := range d.scene.sides {
		o.Addresses = append(o.Addresses, side.pod...)
		for _, prefix := range side.loopback {
			if !slices.Contains(trace.Loopback().Addresses, prefix) {
				o.Loopback = append(o.Loopback, prefix)
			}
		}
	}
	return trace.Sidecar(d.plan, o)
}
