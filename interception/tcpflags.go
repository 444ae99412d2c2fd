// SPDX-License-Identifier: Apache-2.0

package interception

import "strings"

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

// TCPFlags are some flags of the TCP header: those of Mask, of which just those of Set are set. The zero value names no flag. Flags
// of Set outside of Mask are refused by [Build].
type TCPFlags struct {
	Mask, Set TCPFlag
}

// Opening is what the first packet of a connection has: SYN without FIN, RST and ACK.
func Opening() TCPFlags { return TCPFlags{Mask: FlagFIN | FlagSYN | FlagRST | FlagACK, Set: FlagSYN} }

// IsEmpty reports whether no flag is named.
func (f TCPFlags) IsEmpty() bool { return f.Mask == 0 }

// Matches reports whether a header's flags are so.
func (f TCPFlags) Matches(flags TCPFlag) bool { return flags&f.Mask == f.Set }

// String is the flags that are set and those that are looked at, such as "syn/fin,syn,rst,ack".
func (f TCPFlags) String() string { return f.Set.String() + "/" + f.Mask.String() }

// String lists the flags, separated by commas; "none" when there is none.
func (f TCPFlag) String() string {
	var words []string
	for i, word := range []string{"fin", "syn", "rst", "psh", "ack", "urg"} {
		if f&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ",")
}
