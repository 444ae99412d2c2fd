// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// An unknown field meets no condition, negated or not. Build refuses most rules with such
// conditions, but perhaps not all that a larger world will have.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddrPort("192.0.2.1:80")
	w := walk{protocol: interception.ProtocolTCP, header: Header{Src: addr, Dst: addr}}
	links, users, groups := interception.Interfaces("lo"), interception.UIDs(0), interception.GIDs(0)
	for _, match := range []interception.Match{
		{In: interception.Is(links)},
		{In: interception.Not(links)},
		{Out: interception.Is(links)},
		{Out: interception.Not(links)},
		{UID: interception.Is(users)},
		{UID: interception.Not(users)},
		{GID: interception.Is(groups)},
		{GID: interception.Not(groups)},
		{ConnMark: interception.Is(interception.WholeMark(0))},
		{ConnMark: interception.Not(interception.WholeMark(7))},
		{Direction: interception.DirectionOriginal},
		{Direction: interception.DirectionReply},
	} {
		if w.matches(nil, match) != no {
			t.Errorf("%s matches a packet without that field", match)
		}
	}
	if w.matches(nil, interception.Match{}) != yes {
		t.Error("the zero match does not match")
	}
}
