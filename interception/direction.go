// SPDX-License-Identifier: Apache-2.0

package interception

import "fmt"

// Direction says whether a packet goes the way that its connection was opened or back, as connection tracking sees it. The zero
// value stands for both. A packet that connection tracking did not find a connection for, because it is invalid or was taken out
// of tracking ([NoTrack]), has no direction and meets no condition on one.
type Direction uint8

// The directions.
const (
	AnyDirection Direction = iota
	// DirectionOriginal: the packet goes from the side that opened the connection. The first packet of a connection does.
	DirectionOriginal
	// DirectionReply: the packet goes to the side that opened the connection. Its state is established, or related if it is an
	// ICMP error.
	DirectionReply
)

// String is "any", "original" or "reply".
func (d Direction) String() string {
	switch d {
	case AnyDirection:
		return "any"
	case DirectionOriginal:
		return "original"
	case DirectionReply:
		return "reply"
	default:
		return fmt.Sprintf("direction %d", uint8(d))
	}
}
