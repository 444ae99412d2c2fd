// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// End is one end of a wire: an interface's name in a namespace.
type End struct {
	Namespace *Namespace
	Name      string
}

// Connect makes a pair of virtual Ethernet interfaces (veth(4)), sets both up, and returns when both can send.
func Connect(ctx context.Context, a, b End) error {
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: a.Name},
		PeerName:      b.Name,
		PeerNamespace: netlink.NsFd(b.Namespace.netns.Fd()),
	}
	if err := a.Namespace.netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("connect %s and %s: %w", a.Name, b.Name, err)
	}
	if err := errors.Join(a.Namespace.SetUp(a.Name), b.Namespace.SetUp(b.Name)); err != nil {
		return fmt.Errorf("connect %s and %s: %w", a.Name, b.Name, err)
	}
	// The end that came up first had no carrier then, and drops its packets until the kernel has noticed the other. That other
	// can send as soon as it is up, but may be called operational a second later only.
	if err := a.awaitCarrier(ctx); err != nil {
		return fmt.Errorf("wait for %s to be ready: %w", a.Name, err)
	}
	return nil
}

// awaitCarrier waits for the kernel to call the interface operational.
func (e End) awaitCarrier(ctx context.Context) error {
	updates, failures, done := make(chan netlink.LinkUpdate), make(chan error, 1), make(chan struct{})
	defer func() {
		close(done)
		go func() { // the subscription may stand at an update that nobody waits for any more
			for range updates {
			}
		}()
	}()
	handle := netns.NsHandle(e.Namespace.netns.Fd())
	err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		Namespace:    &handle,
		ListExisting: true,
		ErrorCallback: func(err error) {
			select {
			case failures <- err:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	for {
		select {
		case update, open := <-updates:
			if !open {
				return <-failures
			}
			if a := update.Attrs(); a.Name == e.Name && a.OperState == netlink.OperUp {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// IPNet is a prefix as netlink wants it: the address with the mask, not the network.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
