// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// End is one end of a wire: an interface's name in a namespace.
type End struct {
	Namespace *Namespace
	Name      string
}

// Connect creates a pair of virtual Ethernet interfaces (veth(4)), sets both up, and returns when
// both can send.
func Connect(ctx context.Context, a, b End) error {
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: a.Name},
		PeerName:      b.Name,
		PeerNamespace: netlink.NsFd(b.Namespace.handle()),
	}
	if err := a.Namespace.netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("connect %s and %s: %w", a.Name, b.Name, err)
	}
	if err := errors.Join(a.Namespace.SetUp(a.Name), b.Namespace.SetUp(b.Name)); err != nil {
		return fmt.Errorf("connect %s and %s: %w", a.Name, b.Name, err)
	}
	// The end that came up first had no carrier then, and drops its packets until the kernel has
	// noticed the other end. The other end can send as soon as it is up, but may be reported
	// operational only a second later.
	if err := a.awaitCarrier(ctx); err != nil {
		return fmt.Errorf("wait for %s to be ready: %w", a.Name, err)
	}
	return nil
}

// awaitCarrier waits until the kernel reports the interface as operational.
func (e End) awaitCarrier(ctx context.Context) error {
	handle := e.Namespace.handle()
	return await(ctx, func(updates chan netlink.LinkUpdate, done <-chan struct{}, failed func(error)) error {
		o := netlink.LinkSubscribeOptions{Namespace: &handle, ListExisting: true, ErrorCallback: failed}
		return netlink.LinkSubscribeWithOptions(updates, done, o)
	}, func(u netlink.LinkUpdate) bool {
		return u.Attrs().Name == e.Name && u.Attrs().OperState == netlink.OperUp
	})
}

// IPNet returns a prefix in the form of netlink: the address with the mask, not the network.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// subscribe starts a subscription of package netlink: updates arrive until done is closed or the
// subscription has failed.
type subscribe[U any] func(updates chan U, done <-chan struct{}, failed func(error)) error

// await waits for the first of a subscription's updates that is ready.
func await[U any](ctx context.Context, start subscribe[U], ready func(U) bool) error {
	updates, failures, done := make(chan U), make(chan error, 1), make(chan struct{})
	defer func() {
		close(done)
		// The subscription may block on an update that is no longer awaited.
		go func() {
			for range updates {
			}
		}()
	}()
	err := start(updates, done, func(err error) {
		select {
		case failures <- err:
		default:
		}
	})
	if err != nil {
		close(updates)
		return err
	}
	for {
		select {
		case update, open := <-updates:
			if !open {
				return <-failures
			}
			if ready(update) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
