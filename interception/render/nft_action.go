// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// wholeMask selects all bits of a mark.
const wholeMask = ^interception.Mark(0)

func actionWords(r lower.Rule) (string, error) {
	switch a := r.Action.(type) {
	case interception.Accept, interception.Return, interception.Drop, interception.NoTrack:
		return a.String(), nil
	case interception.Jump:
		return "jump " + string(a.Chain), nil
	case interception.Log:
		return fmt.Sprintf("log prefix %q", a.Prefix), nil
	case interception.SetZone:
		return zoneWords(a), nil
	case interception.Reject:
		return rejectWords(r.Match), nil
	case interception.RedirectTo:
		return fmt.Sprintf("redirect to :%d", a.Port), nil
	case interception.DNATTo:
		return "dnat " + translationWords(a.Addr, a.Port), nil
	case interception.SNATTo:
		if word := familyWord(r.Match.EffectiveFamily()); a.Keep {
			return "snat " + word + "to " + word + "saddr", nil
		}
		return "snat " + translationWords(a.Addr, a.Port), nil
	case interception.TProxyTo:
		return fmt.Sprintf("tproxy %sto :%d %s accept", familyWord(r.Match.EffectiveFamily()), a.Port, writeWords("meta mark", a.Mark)), nil
	default:
		return markAction(r.Match, r.Action)
	}
}

func zoneWords(a interception.SetZone) string {
	if a.Direction == interception.AnyDirection {
		return fmt.Sprintf("ct zone set %d", a.Zone)
	}
	return fmt.Sprintf("ct %s zone set %d", a.Direction, a.Zone)
}

func markAction(m interception.Match, a interception.Action) (string, error) {
	switch a := a.(type) {
	case interception.SetMark:
		return writeWords("meta mark", a.Mark), nil
	case interception.SetConnMark:
		return writeWords("ct mark", a.Mark), nil
	case interception.SaveMark:
		if a.Mask == 0 || a.Mask == wholeMask {
			return "ct mark set meta mark", nil
		}
		if set, ok := a.Fixed(m); ok {
			return writeWords("ct mark", set.Mark), nil
		}
	case interception.RestoreMark:
		if a.Mask == 0 || a.Mask == wholeMask {
			return "meta mark set ct mark", nil
		}
		if set, ok := a.Fixed(m); ok {
			return writeWords("meta mark", set.Mark), nil
		}
	}
	// Copying some of the bits takes two registers, for which nft has no syntax before version
	// 1.1.2.
	return "", fmt.Errorf("action %v: %w by this renderer", a, interception.ErrUnsupported)
}

// rejectWords returns the one answer for packets left by the rules before ([lower.Chains]).
func rejectWords(m interception.Match) string {
	if m.L4.Protocol() == interception.ProtocolTCP {
		return "reject with tcp reset"
	}
	switch m.EffectiveFamily() {
	case interception.IPv4:
		return "reject with icmp port-unreachable"
	case interception.IPv6:
		return "reject with icmpv6 port-unreachable"
	case interception.BothFamilies:
	}
	return "reject with icmpx port-unreachable"
}

func translationWords(addr netip.Addr, port interception.Port) string {
	to := addr.String()
	if port != 0 {
		to = netip.AddrPortFrom(addr, uint16(port)).String()
	}
	return familyWord(interception.FamilyOf(addr)) + "to " + to
}

// familyWord returns nft's word for a family and a blank, or "" for both families.
func familyWord(family interception.Family) string {
	switch family {
	case interception.IPv4:
		return "ip "
	case interception.IPv6:
		return "ip6 "
	case interception.BothFamilies:
	}
	return ""
}

func writeWords(field string, m interception.MarkBits) string {
	switch {
	case m.Mask == wholeMask:
		return fmt.Sprintf("%s set 0x%x", field, uint32(m.Value))
	case m.Value == 0:
		return fmt.Sprintf("%s set %s & 0x%x", field, field, uint32(^m.Mask))
	default:
		return fmt.Sprintf("%s set %s & 0x%x | 0x%x", field, field, uint32(^m.Mask), uint32(m.Value))
	}
}
