// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// target returns a rule's action as iptables' target with its options (iptables-extensions(8)), and
// "" for a jump, whose target is in the line.
func (x *xtables) target(r lower.Rule) string {
	switch a := r.Action.(type) {
	case interception.Accept:
		return "ACCEPT"
	case interception.Return:
		return "RETURN"
	case interception.Drop:
		return "DROP"
	case interception.Reject:
		return "REJECT --reject-with " + x.answer(r.Match.L4.Protocol())
	case interception.Log:
		return "LOG --log-prefix " + commentWord(a.Prefix)
	case interception.SetZone:
		option := map[interception.Direction]string{interception.DirectionOriginal: "-orig", interception.DirectionReply: "-reply"}[a.Direction]
		return fmt.Sprintf("CT --zone%s %d", option, a.Zone)
	case interception.NoTrack:
		return "CT --notrack"
	default:
		return joined(x.addressWords(a), markTarget(a))
	}
}

// addressWords returns the target for actions that change an address, and "" for others.
func (x *xtables) addressWords(a interception.Action) string {
	switch a := a.(type) {
	case interception.RedirectTo:
		return fmt.Sprintf("REDIRECT --to-ports %d", a.Port)
	case interception.DNATTo:
		return "DNAT --to-destination " + natAddress(a.Addr, a.Port)
	case interception.SNATTo:
		if a.Keep {
			return "ACCEPT" // in a chain that all programs share
		}
		return "SNAT --to-source " + natAddress(a.Addr, a.Port)
	case interception.TProxyTo:
		address := netip.IPv4Unspecified()
		if x.family == interception.IPv6 {
			address = netip.IPv6Unspecified()
		}
		return fmt.Sprintf("TPROXY --on-port %d --on-ip %s --tproxy-mark %s", a.Port, address, written(a.Mark))
	default:
		return ""
	}
}

// markTarget returns the target for actions on marks, and "" for others.
func markTarget(a interception.Action) string {
	switch a := a.(type) {
	case interception.SetMark:
		return "MARK --set-xmark " + written(a.Mark)
	case interception.SetConnMark:
		return "CONNMARK --set-xmark " + written(a.Mark)
	case interception.SaveMark:
		return "CONNMARK --save-mark " + masks(a.Mask)
	case interception.RestoreMark:
		return "CONNMARK --restore-mark " + masks(a.Mask)
	default:
		return ""
	}
}

// answer returns the option for what the sender of a rejected packet gets.
func (x *xtables) answer(protocol interception.Protocol) string {
	switch {
	case protocol == interception.ProtocolTCP:
		return "tcp-reset"
	case x.family == interception.IPv6:
		return "icmp6-port-unreachable"
	default:
		return "icmp-port-unreachable"
	}
}

// commentWord puts a text in quotes where iptables-save does. Comments need no escapes.
func commentWord(text string) string {
	for _, c := range text {
		if c != '-' && !('0' <= c && c <= '9') && !('a' <= c && c <= 'z') && !('A' <= c && c <= 'Z') {
			return `"` + text + `"`
		}
	}
	return text
}

// written returns a mark to write; bits outside of the mask stay.
func written(m interception.MarkBits) string {
	return fmt.Sprintf("%#x/%#x", uint32(m.Value), uint32(m.Mask))
}

// masks returns the bits to copy between a packet's mark and its connection's; 0 stands for all.
func masks(mask interception.Mark) string {
	mask = cmp.Or(mask, ^interception.Mark(0))
	return fmt.Sprintf("--nfmask %#x --ctmask %#x", uint32(mask), uint32(mask))
}

// addressText returns an address as inet_ntop(3) and therefore iptables-save print it: the last 32
// bits of ::/96 like an IPv4 address, unless the first 16 of them are 0.
func addressText(addr netip.Addr) string {
	bytes := addr.As16()
	if addr.Is6() && [12]byte(bytes[:12]) == [12]byte{} && (bytes[12] != 0 || bytes[13] != 0) {
		return "::" + netip.AddrFrom4([4]byte(bytes[12:])).String()
	}
	return addr.String()
}

// prefixTexts returns prefixes whose addresses are written by [addressText].
func prefixTexts(prefixes []netip.Prefix) []string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = fmt.Sprintf("%s/%d", addressText(p.Addr()), p.Bits())
	}
	return texts
}

// natAddress returns an address, with its port if there is one.
func natAddress(addr netip.Addr, port interception.Port) string {
	text := addressText(addr)
	switch {
	case port == 0:
		return text
	case addr.Is6():
		return fmt.Sprintf("[%s]:%d", text, port)
	default:
		return fmt.Sprintf("%s:%d", text, port)
	}
}
