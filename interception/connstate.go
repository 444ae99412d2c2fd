// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"strings"
)

// ConnState is a set of states in which connection tracking can find a packet (iptables-extensions(8), conntrack). The zero value
// is the empty set; states are joined by |.
type ConnState uint8

// The states.
const (
	// StateNew: the packet starts a connection, or the first one of it that was seen.
	StateNew ConnState = 1 << iota
	// StateEstablished: packets were seen in both directions.
	StateEstablished
	// StateRelated: the packet starts a connection that belongs to another, or is an error about one.
	StateRelated
	// StateInvalid: the packet belongs to no connection, or does not fit into it.
	StateInvalid
	// StateUntracked: the packet was taken out of connection tracking ([NoTrack]).
	StateUntracked
)

// IsEmpty reports whether no state is in the set.
func (s ConnState) IsEmpty() bool { return s == 0 }

// String lists the states, separated by commas, such as "related,established" in the order of their numbers.
func (s ConnState) String() string {
	var words []string
	for i, word := range []string{"new", "established", "related", "invalid", "untracked"} {
		if s&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}

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
