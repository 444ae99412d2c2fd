// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

func (w *ruleWriter) action(r lower.Rule) {
	switch a := r.Action.(type) {
	case interception.Accept:
		w.verdict(verdictAccept)
	case interception.Return:
		w.verdict(verdictReturn)
	case interception.Drop:
		w.verdict(verdictDrop)
	case interception.Jump:
		w.add(verdict(verdictJump, string(a.Chain)))
	case interception.NoTrack:
		w.add(expression{name: "notrack"})
	case interception.Log:
		w.add(logged(a.Prefix))
	case interception.Reject:
		w.reject(r.Match)
	case interception.SetZone:
		w.add(immediate(register, binary.NativeEndian.AppendUint16(nil, a.Zone)), setZone(a.Direction))
	default:
		w.translation(r)
	}
}

func (w *ruleWriter) translation(r lower.Rule) {
	switch a := r.Action.(type) {
	case interception.RedirectTo:
		w.port(register, a.Port)
		w.add(redir())
	case interception.DNATTo:
		w.nat(unix.NFT_NAT_DNAT, a.Addr, a.Port)
	case interception.SNATTo:
		if a.Keep {
			w.keepSource(r.Match.EffectiveFamily())
		} else {
			w.nat(unix.NFT_NAT_SNAT, a.Addr, a.Port)
		}
	case interception.TProxyTo:
		w.port(register, a.Port)
		w.add(transparentProxy(protocolFamily(r.Match.EffectiveFamily())))
		w.setBits(meta(unix.NFT_META_MARK), setMeta(unix.NFT_META_MARK), a.Mark)
		w.verdict(verdictAccept)
	case interception.SetMark:
		w.setBits(meta(unix.NFT_META_MARK), setMeta(unix.NFT_META_MARK), a.Mark)
	case interception.SetConnMark:
		w.setBits(conntrack(unix.NFT_CT_MARK), setConntrack(unix.NFT_CT_MARK), a.Mark)
	case interception.SaveMark:
		set, fixed := a.Fixed(r.Match)
		w.copyMark(packetMark(), connectionMark(), a.Mask, set.Mark, fixed)
	case interception.RestoreMark:
		set, fixed := a.Fixed(r.Match)
		w.copyMark(connectionMark(), packetMark(), a.Mask, set.Mark, fixed)
	}
	if err := supportsAction(r.Action); err != nil {
		w.t.fail(err)
	}
}

// copiesBits reports whether a rule takes a bitwise expression with two registers.
func copiesBits(r lower.Rule) bool {
	var mask interception.Mark
	fixed := false
	switch a := r.Action.(type) {
	case interception.SaveMark:
		mask = a.Mask
		_, fixed = a.Fixed(r.Match)
	case interception.RestoreMark:
		mask = a.Mask
		_, fixed = a.Fixed(r.Match)
	}
	return mask != 0 && mask != wholeMask && !fixed
}

// supportsAction returns an error for an action that rules of nf_tables cannot have.
func supportsAction(a interception.Action) error {
	if a == nil {
		return fmt.Errorf("a rule without an action: %w", interception.ErrUnsupported)
	}
	return nil
}

// supports joins the errors of supportsAction for a plan's rules. Any kind of object is supported.
func supports(p *interception.Plan) error {
	var errs []error
	for at, rule := range p.Rules() {
		if err := supportsAction(rule.Action); err != nil {
			errs = append(errs, fmt.Errorf("%s %s (%s): %w", at, rule.ID, rule.Why, err))
		}
	}
	return errors.Join(errs...)
}

func (w *ruleWriter) verdict(code int32) { w.add(verdict(code, "")) }

// reject gives the one answer that fits the packets which earlier rules have left ([lower.Chains]).
func (w *ruleWriter) reject(m interception.Match) {
	family := m.EffectiveFamily()
	switch {
	case m.L4.Protocol() == interception.ProtocolTCP:
		w.add(reject(unix.NFT_REJECT_TCP_RST, 0))
	case family == interception.IPv4:
		w.checkFamily(family)
		w.add(reject(unix.NFT_REJECT_ICMP_UNREACH, icmpPortUnreachable))
	case family == interception.IPv6:
		w.checkFamily(family)
		w.add(reject(unix.NFT_REJECT_ICMP_UNREACH, icmp6PortUnreachable))
	default:
		w.add(reject(unix.NFT_REJECT_ICMPX_UNREACH, unix.NFT_REJECT_ICMPX_PORT_UNREACH))
	}
}

// The codes of "port unreachable" (RFC 792; RFC 4443, section 3.1).
const (
	icmpPortUnreachable  = 3
	icmp6PortUnreachable = 4
)

func (w *ruleWriter) port(to uint32, port interception.Port) {
	w.add(immediate(to, binary.BigEndian.AppendUint16(nil, uint16(port))))
}

func (w *ruleWriter) nat(kind uint32, addr netip.Addr, port interception.Port) {
	w.add(immediate(register, addr.AsSlice()))
	if port != 0 {
		w.port(secondRegister, port)
	}
	w.add(natTo(kind, protocolFamily(interception.FamilyOf(addr)), port != 0))
}

// keepSource translates the source to itself.
func (w *ruleWriter) keepSource(family interception.Family) {
	w.checkFamily(family)
	w.add(address(family, source), natTo(unix.NFT_NAT_SNAT, protocolFamily(family), false))
}

// setBits writes some bits of the field that load loads and store stores.
func (w *ruleWriter) setBits(load, store expression, m interception.MarkBits) {
	if m.Mask == wholeMask {
		w.add(immediate(register, hostNumber(m.Value)), store)
		return
	}
	w.add(load)
	w.add(bitwise(hostNumber(^m.Mask), hostNumber(m.Value)))
	w.add(store)
}

// protocolFamily returns a family in the kernel's numbering (linux/netfilter.h, NFPROTO_*).
func protocolFamily(family interception.Family) byte {
	switch family {
	case interception.IPv4:
		return unix.NFPROTO_IPV4
	case interception.IPv6:
		return unix.NFPROTO_IPV6
	case interception.BothFamilies:
	}
	return unix.NFPROTO_UNSPEC
}
