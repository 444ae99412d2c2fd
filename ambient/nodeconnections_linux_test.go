// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/talk"
)

// TestNodeKeepsConnections opens connections of a pod and to it before it leaves the mesh, while it
// is outside, and after it has come back. All of them last, with the proxy or without it as they
// have begun.
func TestNodeKeepsConnections(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newCapturingNode(t, backend, ambient.WayVeth)
			talk.Echo(t, n.remote)
			talk.Echo(t, n.meshed)
			var open []net.Conn
			for stage, captured := range []bool{true, false, true} {
				if stage > 0 {
					n.enrol(n.meshed, captured)
				}
				n.relay.Takings() // forget
				for family := range 2 {
					open = append(open, talk.Call(t, n.meshed, n.remote.Addresses[family]), talk.Call(t, n.remote, n.meshed.Addresses[family]))
				}
				for i, conn := range open {
					if err := talk.Say(conn, fmt.Sprintf("%d at stage %d", i, stage)); err != nil {
						t.Errorf("stage %d, connection %d: %v", stage, i, err)
					}
				}
				want := map[bool]int{true: 4}[captured]
				if took := n.relay.Takings(); len(took) != want {
					t.Errorf("stage %d: the proxy took %v, want %d of four", stage, took, want)
				}
			}
		})
	}
}

// enrol makes the addresses of a pod members of the sets, or removes them.
func (n *capturingNode) enrol(pod *nodes.Place, member bool) {
	n.t.Helper()
	for _, address := range pod.Addresses {
		edit, owners := interception.SetEdit{}, map[netip.Addr]string{address: "7c1e"}
		if member {
			edit.Add = owners
		} else {
			edit.Remove = owners
		}
		err := n.backend.UpdateSet(n.t.Context(), n.node.Host.Netns, "test-ambient", ambient.MeshedSet(interception.FamilyOf(address)), edit)
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestNodeCarriesMuch sends more than a packet holds to the application and back, so that both ends
// and the proxy must find out what the wires carry: a tunnel's packets are smaller.
func TestNodeCarriesMuch(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
			t.Run(name+" "+way.String(), func(t *testing.T) {
				t.Parallel()
				n := newCapturingNode(t, backend, way)
				talk.Echo(t, n.remote)
				talk.Echo(t, n.meshed)
				for family := range 2 {
					for _, ends := range [][2]*nodes.Place{{n.meshed, n.remote}, {n.remote, n.meshed}} {
						conn := talk.Call(t, ends[0], ends[1].Addresses[family])
						if err := sayMuch(conn); err != nil {
							t.Errorf("%s to %s: %v", ends[0].Name, ends[1].Addresses[family], err)
						}
					}
				}
				if took := n.relay.Takings(); len(took) != 4 {
					t.Errorf("the proxy took %v, want all four", took)
				}
			})
		}
	}
}

// sayMuch sends four megabytes, and receives them at the same time.
func sayMuch(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	much := bytes.Repeat([]byte("much "), 4<<20/5)
	go func() {
		_, err := conn.Write(much)
		sent <- err
	}()
	heard := make([]byte, len(much))
	if n, err := io.ReadFull(conn, heard); err != nil {
		return fmt.Errorf("after %d bytes: %w", n, err)
	}
	if !bytes.Equal(heard, much) {
		return errors.New("other bytes came back")
	}
	return <-sent
}
