// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"net/netip"
)

// Verdict is how a probe ended.
type Verdict int

// The verdicts.
const (
	// Accepted: a listener of the harness got the probe.
	Accepted Verdict = iota + 1
	// Refused: the sender was told no, by a reset, an ICMP error or the lack of a route.
	Refused
	// Dropped: nobody got it, and nobody told the sender.
	Dropped
)

// String is the verdict in words.
func (v Verdict) String() string {
	switch v {
	case Accepted:
		return "accepted"
	case Refused:
		return "refused"
	case Dropped:
		return "dropped"
	}
	return fmt.Sprintf("Verdict(%d)", int(v))
}

// Observation is what became of a probe. Values can be compared with ==.
type Observation struct {
	// Verdict says which of the other fields have a meaning.
	Verdict Verdict
	// At is where the accepting listener is.
	At Place
	// Port is the port that the accepting listener listens on.
	Port uint16
	// LocalAddr is the destination as the accepting socket sees it: after a redirect the new one.
	LocalAddr netip.AddrPort
	// OriginalDst is the destination before address translation, as a proxy asks for it: SO_ORIGINAL_DST or
	// IP6T_SO_ORIGINAL_DST. It is the zero value when the kernel has no record of the connection (nothing in the namespace wants
	// conntrack) and for UDP, for which the kernel doesn't answer.
	OriginalDst netip.AddrPort
	// Peer is the sender as the accepting socket sees it.
	Peer netip.AddrPort
	// Answered says that what the accepting socket sent back reached the sender.
	Answered bool
	// Err is what a refused sender was told, as a syscall.Errno: ECONNREFUSED for a reset, EHOSTUNREACH, ENETUNREACH, EACCES...
	Err error
}

// String is the observation as one line.
func (o Observation) String() string {
	switch o.Verdict {
	case Dropped:
	case Accepted:
		line := fmt.Sprintf("accepted in %s on port %d as %s, from %s", o.At, o.Port, o.LocalAddr, o.Peer)
		if o.OriginalDst.IsValid() {
			line += ", originally to " + o.OriginalDst.String()
		}
		if !o.Answered {
			line += ", but its answer was lost"
		}
		return line
	case Refused:
		return fmt.Sprintf("refused: %v", o.Err)
	}
	return o.Verdict.String()
}
