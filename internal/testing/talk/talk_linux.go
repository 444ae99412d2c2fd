// SPDX-License-Identifier: Apache-2.0

package talk

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/internal/namespace"
)

// Port is the port of an application that sends back what it receives.
const Port = 7

// Echo runs an application in a pod to the end of the test, which sends back what it receives.
func Echo(t testing.TB, place *nodes.Place) {
	t.Helper()
	for _, address := range place.Addresses {
		var listener net.Listener
		if err := namespace.Run(place.Netns.File(), func() (err error) {
			listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", netip.AddrPortFrom(address, Port).String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				context.AfterFunc(t.Context(), func() { _ = conn.Close() })
				go func() {
					_, _ = io.Copy(conn, conn) // a failure is the other side's to notice
					_ = conn.Close()
				}()
			}
		}()
	}
}

// Call opens a connection to such an application. It ends with the test.
func Call(t testing.TB, from *nodes.Place, to netip.Addr) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var conn net.Conn
	if err := namespace.Run(from.Netns.File(), func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(to, Port).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Say says a word and hears it again.
func Say(conn net.Conn, word string) error {
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(word)); err != nil {
		return err
	}
	heard := make([]byte, len(word))
	if _, err := io.ReadFull(conn, heard); err != nil {
		return err
	}
	if string(heard) != word {
		return fmt.Errorf("heard %q, want %q", heard, word)
	}
	return nil
}
