// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// Place is a network namespace in which programs run: that of a pod or of a [Node]'s host.
type Place struct {
	// Name is the place's own, such as "pod-1-2".
	Name string
	// Netns is the namespace. The place closes it.
	Netns *interception.Netns
	// Addresses are those of a pod, one for each of its families.
	Addresses []netip.Addr

	namespace *sandbox.Namespace
	wires     map[interception.Interface]wire
	links     []trace.Link
}

// wire is the other end of a link.
type wire struct {
	place *Place
	link  interception.Interface
}

// join makes a wire between two places.
func join(ctx context.Context, a *Place, linkOfA string, b *Place, linkOfB string) error {
	err := sandbox.Connect(ctx, sandbox.End{Namespace: a.namespace, Name: linkOfA}, sandbox.End{Namespace: b.namespace, Name: linkOfB})
	if err != nil {
		return err
	}
	ofA, ofB := interception.Interface(linkOfA), interception.Interface(linkOfB)
	a.wires[ofA], b.wires[ofB] = wire{b, ofB}, wire{a, ofA}
	a.links = append(a.links, trace.Link{Name: ofA})
	b.links = append(b.links, trace.Link{Name: ofB})
	return nil
}

// addAddress adds an address to a link of the place.
func (p *Place) addAddress(ctx context.Context, link string, address netip.Prefix) error {
	for i := range p.links {
		if p.links[i].Name == interception.Interface(link) {
			p.links[i].Addresses = append(p.links[i].Addresses, address)
		}
	}
	return p.namespace.AddAddress(ctx, link, address)
}

// Trace returns the place for package trace, without listeners and plans.
func (p *Place) Trace() trace.Namespace {
	return trace.Namespace{Name: p.Name, Links: append([]trace.Link{trace.Loopback()}, p.links...), Forwards: p.Addresses == nil}
}

// Peer returns the place and the link at the other end of a link; nil if there is none.
func (p *Place) Peer(link interception.Interface) (*Place, interception.Interface) {
	other := p.wires[link]
	return other.place, other.link
}

// Visit is what an application has told its client of the connection: the addresses as the
// application sees them.
type Visit struct{ Client, Server netip.AddrPort }

// Serve runs an application on a port until stop is called. It takes connections at all addresses,
// and datagrams at those of the pod.
func (p *Place) Serve(port uint16) (stop func(), err error) {
	var closers []func() error
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	stop = func() {
		cancel()
		for _, c := range closers {
			_ = c() // nothing was written
		}
		serving.Wait()
	}
	var listen net.ListenConfig
	err = p.namespace.Do(func() error {
		for _, family := range []string{"tcp4", "tcp6"} {
			listener, err := listen.Listen(context.Background(), family, net.JoinHostPort("", strconv.Itoa(int(port))))
			if err != nil {
				return err
			}
			closers = append(closers, listener.Close)
			serving.Go(func() { answerConnections(ctx, listener) })
		}
		for _, address := range p.Addresses { // of a wildcard socket the application would not know where a datagram went
			socket, err := listen.ListenPacket(context.Background(), "udp", netip.AddrPortFrom(address, port).String())
			if err != nil {
				return err
			}
			closers = append(closers, socket.Close)
			serving.Go(func() { answerDatagrams(socket) })
		}
		return nil
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("serve port %d in %s: %w", port, p.Name, err)
	}
	return stop, nil
}

func answerConnections(ctx context.Context, listener net.Listener) {
	var ending sync.WaitGroup
	defer ending.Wait()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client has closed that connection
		}
		ending.Go(func() { answerConnection(ctx, conn) })
	}
}

// answerConnection answers at once, and closes the connection after its client: before that, what
// the client has sent would turn the end into a reset, which may overtake the answer.
func answerConnection(ctx context.Context, conn net.Conn) {
	defer conn.Close() //nolint:errcheck // the client notices
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = fmt.Fprintln(conn, conn.RemoteAddr(), conn.LocalAddr()) // likewise
	if tcp, is := conn.(*net.TCPConn); is {
		_ = tcp.CloseWrite() // likewise
	}
	_, _ = io.Copy(io.Discard, conn) // likewise
}

func answerDatagrams(socket net.PacketConn) {
	question := make([]byte, 1)
	for {
		_, client, err := socket.ReadFrom(question)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = socket.WriteTo(fmt.Appendln(nil, client, socket.LocalAddr()), client) // the client notices
		}
	}
}

// Visit connects to an application, over "tcp" or "udp", and returns what it says. An error means
// that there was no answer.
func (p *Place) Visit(ctx context.Context, network string, to netip.AddrPort) (visit Visit, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("visit %s from %s: %w", to, p.Name, err)
		}
	}()
	var conn net.Conn
	if err := p.namespace.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, to.String())
		return err
	}); err != nil {
		return Visit{}, err
	}
	defer conn.Close() //nolint:errcheck // the answer has come, or not
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// There are proxies that give up a client which has closed before it has sent anything.
	if _, err := conn.Write([]byte("?")); err != nil {
		return Visit{}, err
	}
	if tcp, is := conn.(*net.TCPConn); is {
		if err := tcp.CloseWrite(); err != nil { // a program that expects more learns that nothing comes
			return Visit{}, err
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return Visit{}, err
	}
	client, server, _ := strings.Cut(strings.TrimSpace(line), " ")
	if visit.Client, err = netip.ParseAddrPort(client); err != nil {
		return Visit{}, err
	}
	visit.Server, err = netip.ParseAddrPort(server)
	return visit, err
}
