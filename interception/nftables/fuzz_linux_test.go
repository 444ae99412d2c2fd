// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

// FuzzLook has lists of tables, sets and elements of any content: Observe reads them or fails.
func FuzzLook(f *testing.F) {
	plan := &interception.Plan{Owner: "mesh-test", Objects: []interception.Object{
		interception.Set{Name: "members", Family: interception.IPv4, Why: "a set", Live: true},
	}}
	f.Add(
		append([]byte{0, 0, 0, 0, 14, 0, unix.NFTA_TABLE_NAME, 0}, "mesh-test\x00\x00\x00\x0c\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x09"...),
		append([]byte{0, 0, 0, 0, 16, 0, unix.NFTA_SET_NAME, 0}, "set-members\x00\x08\x00\x03\x00\x00\x00\x00\x04\x08\x00\x05\x00\x00\x00\x00\x04"...),
		append([]byte{0, 0, 0, 0, 36, 0, unix.NFTA_SET_ELEM_LIST_ELEMENTS, 128, 32, 0, 1, 128, 25, 0, unix.NFTA_SET_ELEM_USERDATA, 0, 0, 19},
			"address lo ::6/128\x00\x00\x00\x00"...),
	)
	f.Fuzz(func(t *testing.T, table, set, elements []byte) {
		bodies := map[uint16][]byte{
			unix.NFT_MSG_GETTABLE: table, unix.NFT_MSG_GETSET: set, unix.NFT_MSG_GETSETELEM: elements,
			unix.NFT_MSG_GETGEN: {0, 0, 0, 0, 8, 0, 1, 0, 0, 0, 0, 9},
		}
		socket, err := nfnetlink.Dial(kerneltest.Answering(func(datagram []byte) [][]byte {
			kind := binary.NativeEndian.Uint16(datagram[4:])
			return kerneltest.Messages(datagram, kind-1, bodies[kind&0xff])
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = socket.Close() }()
		r := &ownedRules{Dataplane: &Dataplane{}, owner: plan.Owner, socket: socket}
		standing, err := r.Look(t.Context())
		if err == nil && standing.Blocked == nil && r.generation != 9 {
			t.Errorf("generation %d", r.generation)
		}
		_, _ = liveMembers(socket, plan)
	})
}
