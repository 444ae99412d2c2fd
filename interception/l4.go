// SPDX-License-Identifier: Apache-2.0

package interception

import "cmp"

// Protocol is an IP protocol number. The zero value stands for any.
type Protocol uint8

// The protocols that rules name (IANA protocol numbers).
const (
	AnyProtocol Protocol = 0
	ProtocolTCP Protocol = 6
	ProtocolUDP Protocol = 17
)

// String returns "any", "tcp" or "udp".
func (p Protocol) String() string {
	return nameOrNumber(p, "protocol", []string{AnyProtocol: "any", ProtocolTCP: "tcp", ProtocolUDP: "udp"})
}

// L4 is the transport part of a [Match]. The zero value matches any protocol. Only [TCP] and [UDP]
// make another value, so that a caller cannot write a port without a protocol:
//
//	TCP()                        every TCP packet
//	TCP().To(Ports(80, 443))     TCP to one of these ports
//	UDP().NotTo(Ports(53))       UDP to any other port
type L4 struct {
	protocol Protocol
	src, dst Condition[PortSet]
	flags    Condition[TCPFlags]
}

// TCP matches TCP packets.
func TCP() L4 { return L4{protocol: ProtocolTCP} }

// UDP matches UDP packets.
func UDP() L4 { return L4{protocol: ProtocolUDP} }

// To narrows l to packets whose destination port is in ports.
func (l L4) To(ports PortSet) L4 { l.dst = Is(ports); return l }

// NotTo narrows l to packets whose destination port is not in ports.
func (l L4) NotTo(ports PortSet) L4 { l.dst = Not(ports); return l }

// From narrows l to packets whose source port is in ports.
func (l L4) From(ports PortSet) L4 { l.src = Is(ports); return l }

// NotFrom narrows l to packets whose source port is not in ports.
func (l L4) NotFrom(ports PortSet) L4 { l.src = Not(ports); return l }

// Flags narrows l, which must be TCP, to packets with these flags.
func (l L4) Flags(flags TCPFlags) L4 { l.flags = Is(flags); return l }

// NotFlags narrows l, which must be TCP, to packets whose flags differ from these.
func (l L4) NotFlags(flags TCPFlags) L4 { l.flags = Not(flags); return l }

// Protocol returns the protocol that l matches; [AnyProtocol] for the zero value.
func (l L4) Protocol() Protocol { return l.protocol }

// SrcPort returns the condition on the source port.
func (l L4) SrcPort() Condition[PortSet] { return l.src }

// DstPort returns the condition on the destination port.
func (l L4) DstPort() Condition[PortSet] { return l.dst }

// TCPFlags returns the condition on the flags of TCP.
func (l L4) TCPFlags() Condition[TCPFlags] { return l.flags }

// narrowed reports whether l tests anything but the protocol.
func (l L4) narrowed() bool { return l.src.Present() || l.dst.Present() || l.flags.Present() }

// appendText appends the protocol and the conditions, or nothing for the zero value.
func (l L4) appendText(words []string) []string {
	if l.protocol == AnyProtocol && !l.narrowed() {
		return words
	}
	words = append(words, l.protocol.String())
	words = l.src.appendText(words, "sport")
	words = l.dst.appendText(words, "dport")
	return l.flags.appendText(words, "flags")
}

// TCPFlag is a flag of the TCP header (RFC 9293, section 3.1), as its bit.
type TCPFlag uint8

// The flags.
const (
	FlagFIN TCPFlag = 1 << iota
	FlagSYN
	FlagRST
	FlagPSH
	FlagACK
	FlagURG
)

// TCPFlags are the flags of the TCP header that Mask selects; those in Set must be set, the rest
// must not. The zero value selects no flag. [Build] refuses flags of Set outside Mask.
type TCPFlags struct {
	Mask, Set TCPFlag
}

// Opening returns the flags of a connection's first packet: SYN without FIN, RST and ACK.
func Opening() TCPFlags { return TCPFlags{Mask: FlagFIN | FlagSYN | FlagRST | FlagACK, Set: FlagSYN} }

// IsEmpty reports whether no flag is selected.
func (f TCPFlags) IsEmpty() bool { return f.Mask == 0 }

// Matches reports whether the selected flags of a header have these values.
func (f TCPFlags) Matches(flags TCPFlag) bool { return flags&f.Mask == f.Set }

// String returns the flags to be set and those that are tested, such as "syn/fin,syn,rst,ack".
func (f TCPFlags) String() string { return f.Set.String() + "/" + f.Mask.String() }

// String returns the flags, separated by commas, and "none" for the empty set.
func (f TCPFlag) String() string {
	return cmp.Or(bitNames(f, "fin", "syn", "rst", "psh", "ack", "urg"), "none")
}
