// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/originaldst"
)

// patience limits a connection and its answer: long enough for a machine under load to repeat a
// packet or two, and short enough for a user who waits for a connection that is never answered.
const patience = 4 * time.Second

// runWorkload is a container's program. It opens the given sockets, answers each line on them with
// what it sees, and connects on order.
func runWorkload(ctx context.Context, env environment) int {
	if err := workload(ctx, env.stdin, env.stdout); err != nil {
		fmt.Fprintf(env.stderr, "workload: %v\n", err)
		return exitFailure
	}
	return exitOK
}

func workload(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in, out := json.NewDecoder(stdin), json.NewEncoder(stdout)
	var sockets []socketAddress
	if err := in.Decode(&sockets); err != nil {
		return err
	}
	var ready report
	for _, address := range sockets {
		if err := listen(ctx, address); err != nil {
			ready.Failure = err.Error()
		}
	}
	if err := out.Encode(ready); err != nil {
		return err
	}
	for open := (connections{}); ; {
		var o order
		switch err := in.Decode(&o); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := out.Encode(open.obey(ctx, o)); err != nil {
			return err
		}
	}
}

// listen answers connections until the process ends.
func listen(ctx context.Context, address socketAddress) error {
	if strings.HasPrefix(address.Network, "udp") {
		return listenUDP(address)
	}
	config := net.ListenConfig{}
	if address.Transparent {
		config.Control = makeTransparent
	}
	l, err := config.Listen(ctx, address.Network, address.Address.String())
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				fmt.Fprintf(os.Stderr, "workload: accept: %v\n", err)
				return
			}
			go func() {
				if err := serve(conn, address.Name); err != nil {
					fmt.Fprintf(os.Stderr, "workload: answer %s: %v\n", conn.RemoteAddr(), err)
				}
			}()
		}
	}()
	return nil
}

// makeTransparent sets IP_TRANSPARENT (ip(7)) or IPV6_TRANSPARENT on a socket before it is bound.
func makeTransparent(network, _ string, raw syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if network == "tcp6" {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, 1) }); err != nil {
		return err
	}
	return os.NewSyscallError("setsockopt", set)
}

// listenUDP answers each datagram with one, until the process ends.
func listenUDP(address socketAddress) error {
	socket, err := net.ListenUDP(address.Network, net.UDPAddrFromAddrPort(address.Address))
	if err != nil {
		return err
	}
	go func() {
		heard := make([]byte, 1<<10)
		for {
			n, from, err := socket.ReadFromUDPAddrPort(heard)
			if err != nil {
				fmt.Fprintf(os.Stderr, "workload: read: %v\n", err)
				return
			}
			text, err := json.Marshal(answer{Listener: address.Name, Client: from.Addr().Unmap(), Heard: string(heard[:n])})
			if err == nil {
				_, err = socket.WriteToUDPAddrPort(text, from)
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "workload: answer %s: %v\n", from, err)
			}
		}
	}()
	return nil
}

// serve answers each line that the other side of a connection sends with what this side sees, until
// the other side closes the connection.
func serve(accepted net.Conn, name string) (err error) {
	conn, ok := accepted.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("%T is not a connection of TCP", accepted)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	for lines := bufio.NewReader(conn); ; {
		heard, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		original, err := originaldst.Of(conn)
		if err != nil {
			return err
		}
		if !original.IsValid() { // without connection tracking, no rule changed the destination
			if original, err = netip.ParseAddrPort(conn.LocalAddr().String()); err != nil {
				return err
			}
		}
		if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if err := json.NewEncoder(conn).Encode(answer{Listener: name, Original: original, Client: client.Addr(), Heard: heard}); err != nil {
			return err
		}
	}
}

// connections are a workload's open connections, by their names in orders.
type connections map[string]*connection

type connection struct {
	net.Conn

	answers *json.Decoder
}

// obey does what an order says, and reports what came of it.
func (all connections) obey(ctx context.Context, o order) report {
	c := all[o.Connection]
	if o.Close {
		if c == nil {
			return report{Failure: fmt.Sprintf("no connection %q is open", o.Connection)}
		}
		delete(all, o.Connection)
		_ = c.Close() // the data is already sent
		return report{}
	}
	if c == nil {
		opened, err := connect(ctx, o)
		if err != nil {
			return report{Failure: failure(err)}
		}
		c = opened
		if o.Connection == "" {
			defer c.Close() //nolint:errcheck // the data is already sent
		} else {
			all[o.Connection] = c
		}
	}
	return c.exchange()
}

// connect opens a connection.
func connect(ctx context.Context, o order) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var dialer net.Dialer
	if o.Source.IsValid() {
		// All probes with a source are TCP.
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.Source, 0))
	}
	conn, err := dialer.DialContext(ctx, o.Network, o.Destination.String())
	if err != nil {
		return nil, err
	}
	return &connection{conn, json.NewDecoder(conn)}, nil
}

// exchange sends a line and reads the listener's answer.
func (c *connection) exchange() report {
	said := rand.Text() + "\n"
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return report{Failure: err.Error()}
	}
	if _, err := io.WriteString(c, said); err != nil {
		return report{Failure: failure(err)}
	}
	var a answer
	if err := c.answers.Decode(&a); err != nil {
		return report{Failure: failure(err)}
	}
	if a.Heard != said {
		return report{Failure: fmt.Sprintf("the listener heard %q, and %q was said", a.Heard, said)}
	}
	return report{Answer: a}
}

// failure translates an error into a word that expectations use, or returns its text.
func failure(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return refused
	case errors.Is(err, unix.ENETUNREACH):
		return unroutable
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, unix.EHOSTUNREACH):
		return unanswered
	default:
		return err.Error()
	}
}
