// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Ping sends an echo request, each second another one, and returns when a reply is there. An error
// means that there was none before ctx ended.
func (p *Place) Ping(ctx context.Context, to netip.Addr) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("ping %s from %s: %w", to, p.Name, errors.Join(err, ctx.Err()))
		}
	}()
	network, protocol := "ip4:icmp", ipv4.ICMPTypeEcho.Protocol()
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if to.Is6() {
		network, protocol = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest.Protocol()
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var conn *icmp.PacketConn
	if err := p.namespace.Do(func() (err error) {
		conn, err = icmp.ListenPacket(network, "")
		return err
	}); err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // a raw socket has nothing left to write
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	message, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: 1, Data: []byte(p.Name)}}).Marshal(nil)
	if err != nil {
		return err
	}
	return awaitReply(conn, message, to, protocol, reply)
}

// awaitReply sends a request until there is a reply.
func awaitReply(conn *icmp.PacketConn, message []byte, to netip.Addr, protocol int, reply icmp.Type) error {
	answer := make([]byte, 1500)
	for sent := (time.Time{}); ; {
		if time.Since(sent) >= time.Second { // the last one, if any, got lost
			if _, err := conn.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}); err != nil {
				return err
			}
			sent = time.Now()
			if err := conn.SetReadDeadline(sent.Add(time.Second)); err != nil {
				return err
			}
		}
		size, from, err := conn.ReadFrom(answer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return err
		}
		if got, err := icmp.ParseMessage(protocol, answer[:size]); err != nil {
			return err
		} else if got.Type == reply && from.String() == to.String() { // others' packets come, too
			return nil
		}
	}
}
