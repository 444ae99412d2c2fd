// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Outcome says where a packet ended, and why.
type Outcome struct {
	// Packet is the packet that was traced, with the source that it got.
	Packet Packet
	// Verdict is what became of it.
	Verdict Verdict
	// Namespace is the name of the namespace where that was.
	Namespace string
	// Link is the link that the packet went by last: for Sent the one it leaves by. It is "" when
	// no link was found.
	Link interception.Interface
	// Header is source and destination of the packet as it ends.
	Header Header
	// Listener is the one whose socket took the packet. It is zero unless Delivered, and when
	// another socket took it: that of the connection's opener, or of a living connection that no
	// listener of the world can have taken.
	Listener Listener
	// Socket is the one that opened the connection, and takes an answer; nil when it was not that
	// one which took the packet.
	Socket *Socket
	// OriginalDst is the destination that the packet had at its start. It is what the listener's
	// socket learns by asking for SO_ORIGINAL_DST, which the kernel answers for TCP only, where it
	// is tracked, and in no zone of its own. It is zero when no listener took the packet.
	OriginalDst netip.AddrPort
	// Cause says why no route was taken; it is zero unless Unroutable.
	Cause Cause
	// Path are the entries taken and the rules that matched, in order. With Unknown the last one is
	// a rule that may match.
	Path []Step
	// Flow is what the kernel knows of the connection behind the packet: the packet's flow or, when
	// it has none, the one that it was given. When there is neither, it is an Untracked one if the
	// packet came through, and nil if it did not.
	Flow *Flow
}

// Verdict is what became of a packet.
type Verdict uint8

// The verdicts.
const (
	// Delivered: a listener took it.
	Delivered Verdict = iota + 1
	// Refused: it came to a local address and port where nothing listens or, in the midst of a
	// connection, where nothing has that connection. The sender is told so; a TCP connection is
	// reset, as far as the reset finds its way.
	Refused
	// Sent: it left by a link to the neighbour.
	Sent
	// Dropped: a rule discarded it, the last one of Path.
	Dropped
	// Unroutable: routing discarded it or, before the first hook, gave the socket an error.
	Unroutable
	// Rejected: a rule discarded it, the last one of Path, and told the sender.
	Rejected
	// Unknown: what becomes of it depends on the last rule of Path, and that on members of a live
	// set which the world doesn't give.
	Unknown
)

// String is the verdict in lower case.
func (v Verdict) String() string {
	names := [...]string{"no verdict", "delivered", "refused", "sent", "dropped", "unroutable", "rejected", "unknown"}
	if int(v) >= len(names) {
		return names[0]
	}
	return names[v]
}

// Cause says why routing discarded a packet.
type Cause uint8

// The causes.
const (
	// NoRoute: no link leads to the destination (ENETUNREACH), or there is no address to send from.
	// There is none either, for IPv4, when a route of a plan's table makes the destination local
	// and the socket is not Transparent.
	NoRoute Cause = iota + 1
	// NotLocal: it came by a link and is not for this namespace, which does not forward.
	NotLocal
	// Martian: its addresses cannot be seen on that link: a loopback address beyond lo, or for IPv4
	// an own address as source of what comes in.
	Martian
)

// String says the cause in words.
func (c Cause) String() string {
	switch c {
	case NoRoute:
		return "no link leads to the destination"
	case NotLocal:
		return "it is not for this namespace, which does not forward"
	case Martian:
		return "such an address cannot be seen on this link"
	default:
		return "no cause"
	}
}

// Step is an entry that was taken, or a rule that matched.
type Step struct {
	// Namespace is the name of the namespace.
	Namespace string
	// Hook is where in the packet's way it was asked.
	Hook interception.Hook
	// In and Out are the links that the hook knew: in Output, Out is the one found before any rule
	// was asked.
	In, Out interception.Interface
	// Owner is whose plan it is in.
	Owner interception.Owner
	// Table and Chain are where it stands; Chain is "" for an entry.
	Table interception.TableKind
	Chain interception.ChainName
	// Rule is the rule: its id, match and action, why it is there and what made it. For an entry,
	// it is the jump.
	Rule interception.Rule
	// Before and After are the packet's source, destination and mark around it.
	Before, After Header
	// Rerouted says that the kernel routed the packet again because of what this rule changed, and
	// sent it by another link.
	Rerouted bool
}

// Changed reports whether the step changed the packet.
func (s Step) Changed() bool { return s.Before != s.After }

// Decisive returns the step that explains the outcome: the rule that dropped or rejected the
// packet, or of which it is unknown what it does; else the one that sent it to where it goes (be it
// to where it was going): by a new destination, to a transparent proxy, or to another link by its
// mark; else the last that accepted it or returned in a nat table, which decides on destinations,
// else the last that did so in any table. There is none when no rule decided.
func (o Outcome) Decisive() (Step, bool) {
	switch o.Verdict {
	case Dropped, Rejected, Unknown:
		if len(o.Path) > 0 {
			return o.Path[len(o.Path)-1], true
		}
	case Delivered, Refused, Sent, Unroutable:
	}
	for _, decides := range []func(Step) bool{Step.redirects, Step.endsNAT, Step.ends} {
		for _, step := range slices.Backward(o.Path) {
			if decides(step) {
				return step, true
			}
		}
	}
	return Step{}, false
}

func (s Step) redirects() bool {
	switch s.Rule.Action.(type) {
	case interception.RedirectTo, interception.DNATTo, interception.TProxyTo:
		return true
	default:
		return s.Rerouted
	}
}

// ends reports whether the rule ended the questioning of its chain or table.
func (s Step) ends() bool {
	switch s.Rule.Action.(type) {
	case interception.Accept, interception.Return:
		return true
	default:
		return false
	}
}

func (s Step) endsNAT() bool { return s.Table == interception.NAT && s.ends() }
