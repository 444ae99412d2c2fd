// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Outcome is where a packet ended, and why.
type Outcome struct {
	// Packet is the packet that was traced, with the source that it got.
	Packet Packet
	// Verdict is the packet's fate.
	Verdict Verdict
	// Namespace is the name of the packet's namespace.
	Namespace string
	// Link is the last link of the packet; for Sent, the one that it leaves by. It is "" if no link
	// was found.
	Link interception.Interface
	// Header is the packet's source and destination at its end.
	Header Header
	// Listener is the listener whose socket took the packet. It is zero unless Delivered. It is
	// also zero if the connection's opener took the packet, or the socket of a living connection
	// that no listener of the world can have accepted.
	Listener Listener
	// Socket is the socket that opened the connection, if that took the packet, which is then an
	// answer; else nil.
	Socket *Socket
	// Tunnel is the link that took the packet and unpacks what is within it, in a [Journey]; else "".
	Tunnel interception.Interface
	// OriginalDst is the packet's first destination. It is what the listener's socket reads from
	// SO_ORIGINAL_DST, which the kernel supports for TCP only, if it is tracked and in no zone of
	// its own. It is zero if no listener took the packet.
	OriginalDst netip.AddrPort
	// Cause is why no route was taken; it is zero unless Unroutable.
	Cause Cause
	// Path lists the entries taken and the rules that matched, in order. With Unknown, the last
	// rule is one that may match.
	Path []Step
	// Flow is what the kernel knows of the connection after the packet: the packet's flow or, if it
	// has none, the flow of the input. Without either, it is an Untracked flow if the packet came
	// through, and nil if it did not.
	Flow *Flow
}

// Verdict is the fate of a packet.
type Verdict uint8

// The verdicts.
const (
	// Delivered: a listener took it.
	Delivered Verdict = iota + 1
	// Refused: the packet came to a local address and port where no socket listens or,
	// mid-connection, where no socket has that connection. The kernel informs the sender; it resets
	// a TCP connection, if the reset finds its way.
	Refused
	// Sent: it left by a link to the neighbour.
	Sent
	// Dropped: the last rule of Path discarded the packet.
	Dropped
	// Unroutable: routing discarded it or, before the first hook, gave the socket an error.
	Unroutable
	// Rejected: the last rule of Path discarded the packet and informed the sender.
	Rejected
	// Unknown: the fate depends on the last rule of Path, whose match depends on members of a live
	// set that the world does not list.
	Unknown
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	names := [...]string{"no verdict", "delivered", "refused", "sent", "dropped", "unroutable", "rejected", "unknown"}
	if int(v) >= len(names) {
		return names[0]
	}
	return names[v]
}

// Cause is why routing discarded a packet.
type Cause uint8

// The causes.
const (
	// NoRoute: no link leads to the destination (ENETUNREACH), or no address can be the source. The
	// latter includes, for IPv4, a destination that a plan's table makes local if the socket is not
	// Transparent.
	NoRoute Cause = iota + 1
	// NotLocal: it came by a link and is not for this namespace, which does not forward.
	NotLocal
	// Martian: the addresses are impossible on that link: a loopback address on a link other than
	// lo or, for IPv4, an incoming packet with an own address as source.
	Martian
	// Unreachable: a route of a plan says that the destination cannot be reached (EHOSTUNREACH).
	Unreachable
	// Discarded: a route of a plan is a black hole (EINVAL).
	Discarded
	// Filtered: the route to its source does not lead back by the link that it came by, or there is
	// none (rp_filter).
	Filtered
	// NoNeighbour: no end of the wire has the address of the next hop.
	NoNeighbour
	// Expired: it was forwarded too often.
	Expired
	// Circular: a tunnel's packets are sent by the tunnel itself.
	Circular
)

// String returns the cause in words.
func (c Cause) String() string {
	return cmp.Or(map[Cause]string{
		NoRoute:     "no link leads to the destination",
		NotLocal:    "it is not for this namespace, which does not forward",
		Martian:     "such an address cannot be seen on this link",
		Unreachable: "a route says that the destination cannot be reached",
		Discarded:   "a route discards what goes there",
		Filtered:    "the way back to its source is not by this link (rp_filter)",
		NoNeighbour: "no neighbour has the address of the next hop",
		Expired:     "it was forwarded too often",
		Circular:    "a tunnel leads into itself",
	}[c], "no cause")
}

// Step is an entry that was taken, or a rule that matched.
type Step struct {
	// Namespace is the name of the namespace.
	Namespace string
	// Hook is where the rule was evaluated.
	Hook interception.Hook
	// In and Out are the links that the hook knew; in Output, Out is the link found before the
	// first rule.
	In, Out interception.Interface
	// Owner is the owner of the rule's plan.
	Owner interception.Owner
	// Table and Chain contain the rule; Chain is "" for an entry.
	Table interception.TableKind
	Chain interception.ChainName
	// Rule is the rule with its id, match, action, reason and provenance. For an entry, it is the
	// jump.
	Rule interception.Rule
	// Before and After are the packet's source, destination and mark around it.
	Before, After Header
	// Rerouted reports whether the kernel routed the packet again because of this rule, and sent it
	// by another link.
	Rerouted bool
}

// Changed reports whether the step changed the packet.
func (s Step) Changed() bool { return s.Before != s.After }

// Decisive returns the step that explains the outcome: the rule that dropped or rejected the
// packet, or whose effect is unknown; else the rule that chose its target (a new destination, a
// transparent proxy, or another link by its mark), even if the target stayed the same; else the
// last rule that accepted it or returned in a nat table, which decides on destinations; else the
// last that did so in any table. It reports false if no rule decided.
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

// ends reports whether the rule ended the evaluation of its chain or table.
func (s Step) ends() bool {
	switch s.Rule.Action.(type) {
	case interception.Accept, interception.Return:
		return true
	default:
		return false
	}
}

func (s Step) endsNAT() bool { return s.Table == interception.NAT && s.ends() }
