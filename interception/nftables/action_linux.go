// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

// action is what comes behind the conditions of a rule.
func (w *ruleWriter) action(r render.Rule) {
	switch a := r.Action.(type) {
	case interception.Accept:
		w.verdict(expr.VerdictAccept)
	case interception.Return:
		w.verdict(expr.VerdictReturn)
	case interception.Drop:
		w.verdict(expr.VerdictDrop)
	case interception.Jump:
		w.add(&expr.Verdict{Kind: expr.VerdictJump, Chain: string(a.Chain)})
	case interception.NoTrack:
		w.add(&expr.Notrack{})
	case interception.Log:
		w.add(&expr.Log{Key: 1 << unix.NFTA_LOG_PREFIX, Data: []byte(a.Prefix)})
	case interception.Reject:
		w.reject(r.Match)
	case interception.SetZone:
		w.add(&expr.Immediate{Register: register, Data: binary.NativeEndian.AppendUint16(nil, a.Zone)}, setConntrack(expr.CtKeyZONE))
	default:
		w.translation(r)
	}
}

// translation is an action that writes addresses, ports or marks.
func (w *ruleWriter) translation(r render.Rule) {
	switch a := r.Action.(type) {
	case interception.RedirectTo:
		w.port(register, a.Port)
		w.add(&expr.Redir{RegisterProtoMin: register, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED})
	case interception.DNATTo:
		w.nat(expr.NATTypeDestNAT, a.Addr, a.Port)
	case interception.SNATTo:
		w.nat(expr.NATTypeSourceNAT, a.Addr, a.Port)
	case interception.TProxyTo:
		w.port(register, a.Port)
		w.add(&expr.TProxy{Family: protocolFamily(r.Match.EffectiveFamily()), RegPort: register})
		w.setBits(meta(expr.MetaKeyMARK), setMeta(expr.MetaKeyMARK), a.Mark)
		w.verdict(expr.VerdictAccept)
	case interception.SetMark:
		w.setBits(meta(expr.MetaKeyMARK), setMeta(expr.MetaKeyMARK), a.Mark)
	case interception.SetConnMark:
		w.setBits(conntrack(expr.CtKeyMARK), setConntrack(expr.CtKeyMARK), a.Mark)
	case interception.SaveMark:
		w.add(meta(expr.MetaKeyMARK), setConntrack(expr.CtKeyMARK))
	case interception.RestoreMark:
		w.add(conntrack(expr.CtKeyMARK), setMeta(expr.MetaKeyMARK))
	}
	if err := supportsAction(r.Action); err != nil {
		w.t.fail(err)
	}
}

// supportsAction names an action that rules of nf_tables cannot have.
func supportsAction(a interception.Action) error {
	mask := wholeMask
	switch a := a.(type) {
	case nil:
		return fmt.Errorf("a rule without an action: %w", interception.ErrUnsupported)
	case interception.SaveMark:
		mask = a.Mask
	case interception.RestoreMark:
		mask = a.Mask
	}
	if mask != 0 && mask != wholeMask {
		return fmt.Errorf("action %v: %w by nf_tables before Linux 6.13, which copies whole marks: leave out the mask",
			a, interception.ErrUnsupported)
	}
	return nil
}

// supports joins what supportsAction says of a plan's rules. All kinds of objects are supported.
func supports(p *interception.Plan) error {
	var errs []error
	for at, rule := range p.Rules() {
		if err := supportsAction(rule.Action); err != nil {
			errs = append(errs, fmt.Errorf("%s %s (%s): %w", at, rule.ID, rule.Why, err))
		}
	}
	return errors.Join(errs...)
}

func (w *ruleWriter) verdict(kind expr.VerdictKind) { w.add(&expr.Verdict{Kind: kind}) }

// reject gives the one answer that fits what is left by the rules before ([render.Chains]).
func (w *ruleWriter) reject(m interception.Match) {
	family := m.EffectiveFamily()
	switch {
	case m.L4.Protocol() == interception.ProtocolTCP:
		w.add(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	case family == interception.IPv4:
		w.checkFamily(family)
		w.add(&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: icmpPortUnreachable})
	case family == interception.IPv6:
		w.checkFamily(family)
		w.add(&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: icmp6PortUnreachable})
	default:
		w.add(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH})
	}
}

// The codes of "port unreachable" (RFC 792; RFC 4443, section 3.1).
const (
	icmpPortUnreachable  = 3
	icmp6PortUnreachable = 4
)

func (w *ruleWriter) port(to uint32, port interception.Port) {
	w.add(&expr.Immediate{Register: to, Data: binary.BigEndian.AppendUint16(nil, uint16(port))})
}

func (w *ruleWriter) nat(kind expr.NATType, addr netip.Addr, port interception.Port) {
	nat := &expr.NAT{Type: kind, Family: uint32(protocolFamily(interception.FamilyOf(addr))), RegAddrMin: register}
	w.add(&expr.Immediate{Register: register, Data: addr.AsSlice()})
	if port != 0 {
		w.port(secondRegister, port)
		nat.RegProtoMin = secondRegister
	}
	w.add(nat)
}

// setBits writes some bits of what load loads and store stores.
func (w *ruleWriter) setBits(load, store expr.Any, m interception.MarkBits) {
	if m.Mask == wholeMask {
		w.add(&expr.Immediate{Register: register, Data: hostNumber(m.Value)}, store)
		return
	}
	w.add(load)
	w.bits(hostNumber(^m.Mask), hostNumber(m.Value))
	w.add(store)
}

func setMeta(k expr.MetaKey) expr.Any {
	return &expr.Meta{Key: k, Register: register, SourceRegister: true}
}

func setConntrack(k expr.CtKey) expr.Any {
	return &expr.Ct{Key: k, Register: register, SourceRegister: true}
}

// protocolFamily is a family in the kernel's numbering (linux/netfilter.h, NFPROTO_*).
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
