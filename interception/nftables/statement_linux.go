// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

func (r *reading) do(a interception.Action) error {
	r.actions = append(r.actions, a)
	return nil
}

func (r *reading) notrack(*attributes) error { return r.do(interception.NoTrack{}) }

// finish makes one action of what the rule does; a rule that does nothing gets no action.
func (r *reading) finish() error {
	if !r.settled() {
		return errUnknown
	}
	if len(r.actions) == 3 {
		half, ok := r.actions[0].(tproxy)
		mark, ok2 := r.actions[1].(interception.SetMark)
		_, accepts := r.actions[2].(interception.Accept)
		if ok && ok2 && accepts && half.family == uint32(protocolFamily(r.match.EffectiveFamily())) {
			r.actions = []interception.Action{interception.TProxyTo{Port: half.port, Mark: mark.Mark}}
		}
	}
	if len(r.actions) > 1 {
		return errUnknown
	}
	for _, action := range r.actions {
		if _, half := action.(tproxy); half {
			return errUnknown
		}
	}
	return nil
}

func (r *reading) immediate(a *attributes) error {
	register, data := a.number(unix.NFTA_IMMEDIATE_DREG), parseAttributes(a.take(unix.NFTA_IMMEDIATE_DATA))
	if register != unix.NFT_REG_VERDICT {
		constant := data.take(unix.NFTA_DATA_VALUE)
		if !data.whole() || len(constant) == 0 || len(constant) > 64 {
			return errUnknown
		}
		return r.store(register, value{constant: constant, length: uint32(len(constant))})
	}
	verdict := parseAttributes(data.take(unix.NFTA_DATA_VERDICT))
	verdict.take(verdictChainID)
	return r.verdict(int32(verdict.number(unix.NFTA_VERDICT_CODE)), verdict.text(unix.NFTA_VERDICT_CHAIN), data.whole() && verdict.whole())
}

func (r *reading) verdict(code int32, chain string, whole bool) error {
	switch {
	case !whole:
		return errUnknown
	case code == verdictJump && chain != "":
		return r.do(interception.Jump{Chain: interception.ChainName(chain)})
	case code == verdictAccept:
		return r.do(interception.Accept{})
	case code == verdictDrop:
		return r.do(interception.Drop{})
	case code == verdictReturn:
		return r.do(interception.Return{})
	default:
		return errUnknown
	}
}

const verdictChainID = 3 // NFTA_VERDICT_CHAIN_ID, of a transaction

func (r *reading) port(register uint32) (interception.Port, error) {
	v, err := r.load(register, 2)
	if err != nil || v.constant == nil {
		return 0, errUnknown
	}
	return interception.Port(binary.BigEndian.Uint16(v.constant)), nil
}

// registers returns the register of a one-value range, whose second end the kernel may repeat.
func registers(a *attributes, low, high uint16) (uint32, error) {
	register := a.number(low)
	if a.has(high) && a.number(high) != register {
		return 0, errUnknown
	}
	return register, nil
}

func (r *reading) redirect(a *attributes) error {
	register, err := registers(a, unix.NFTA_REDIR_REG_PROTO_MIN, unix.NFTA_REDIR_REG_PROTO_MAX)
	if err != nil || a.number(unix.NFTA_REDIR_FLAGS) != unix.NF_NAT_RANGE_PROTO_SPECIFIED {
		return errUnknown
	}
	port, err := r.port(register)
	if err != nil || port == 0 || r.match.L4.Protocol() == interception.AnyProtocol {
		return errUnknown
	}
	return r.do(interception.RedirectTo{Port: port})
}

func (r *reading) nat(a *attributes) error {
	register, err := registers(a, unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX)
	if err != nil {
		return err
	}
	port, flags, err := r.natPort(a)
	if err != nil {
		return err
	}
	kind, family := a.number(unix.NFTA_NAT_TYPE), a.number(unix.NFTA_NAT_FAMILY)
	if a.number(unix.NFTA_NAT_FLAGS)&^flags != 0 || family != uint32(protocolFamily(r.family)) || r.family == interception.BothFamilies {
		return errUnknown
	}
	v, err := r.load(register, int(addressKey(r.family).length))
	if err != nil {
		return errUnknown
	}
	if v.constant == nil {
		if kind == unix.NFT_NAT_SNAT && port == 0 && r.isSource(v) {
			return r.do(interception.SNATTo{Keep: true})
		}
		return errUnknown
	}
	addr, _ := netip.AddrFromSlice(v.constant)
	if kind == unix.NFT_NAT_SNAT {
		return r.do(interception.SNATTo{Addr: addr, Port: port})
	}
	return r.do(interception.DNATTo{Addr: addr, Port: port})
}

// natPort returns the port of a translation, 0 if it has none, and the flags that it may have.
func (r *reading) natPort(a *attributes) (interception.Port, uint32, error) {
	if !a.has(unix.NFTA_NAT_REG_PROTO_MIN) {
		return 0, unix.NF_NAT_RANGE_MAP_IPS, nil
	}
	register, err := registers(a, unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX)
	if err != nil {
		return 0, 0, err
	}
	port, err := r.port(register)
	if err != nil || port == 0 {
		return 0, 0, errUnknown
	}
	return port, unix.NF_NAT_RANGE_MAP_IPS | unix.NF_NAT_RANGE_PROTO_SPECIFIED, nil
}

// isSource reports whether a value is the packet's own source address.
func (r *reading) isSource(v value) bool {
	d, ok := r.direction(v.field)
	return ok && d == source && v.mask == nil
}

func (r *reading) tproxy(a *attributes) error {
	family := a.number(tproxyFamily)
	port, err := r.port(a.number(tproxyPort))
	if err != nil || port == 0 || r.match.L4.Protocol() == interception.AnyProtocol {
		return errUnknown
	}
	return r.do(tproxy{port: port, family: family})
}

// reject decodes one of the answers that rules give ([ruleWriter.reject]).
func (r *reading) reject(a *attributes) error {
	kind, code := a.number(unix.NFTA_REJECT_TYPE), a.take(unix.NFTA_REJECT_ICMP_CODE)
	if r.match.L4.Protocol() == interception.ProtocolTCP {
		if kind != unix.NFT_REJECT_TCP_RST {
			return errUnknown
		}
		return r.do(interception.Reject{})
	}
	unreachable := map[uint32][]byte{
		unix.NFT_REJECT_ICMPX_UNREACH: {unix.NFT_REJECT_ICMPX_PORT_UNREACH},
		unix.NFT_REJECT_ICMP_UNREACH: map[interception.Family][]byte{
			interception.IPv4: {icmpPortUnreachable}, interception.IPv6: {icmp6PortUnreachable},
		}[r.family],
	}[kind]
	if unreachable == nil || !bytes.Equal(code, unreachable) {
		return errUnknown
	}
	return r.do(interception.Reject{})
}

// defaultLevel is LOGLEVEL_WARNING, the kernel's default.
const defaultLevel = 4

func (r *reading) log(a *attributes) error {
	prefix, level := a.text(unix.NFTA_LOG_PREFIX), uint32(defaultLevel)
	if a.has(unix.NFTA_LOG_LEVEL) {
		level = a.number(unix.NFTA_LOG_LEVEL)
	}
	if level != defaultLevel || a.number(unix.NFTA_LOG_FLAGS) != 0 {
		return errUnknown
	}
	return r.do(interception.Log{Prefix: prefix})
}

func (r *reading) setMeta(key, register uint32) error {
	v, err := r.loadAny(register, 4)
	switch {
	case err != nil || key != unix.NFT_META_MARK:
		return errUnknown
	case v.merged != nil:
		mask, err := copied(v, field{source: "ct", key: unix.NFT_CT_MARK}, metaField(unix.NFT_META_MARK))
		if err != nil {
			return err
		}
		return r.do(interception.RestoreMark{Mask: mask})
	case v.field == field{source: "ct", key: unix.NFT_CT_MARK} && v.mask == nil:
		return r.do(interception.RestoreMark{})
	}
	mark, err := written(v, metaField(unix.NFT_META_MARK))
	if err != nil {
		return err
	}
	return r.do(interception.SetMark{Mark: mark})
}

// setZone reads the zone of one direction, or of both if there is none.
func (r *reading) setZone(register uint32, direction []byte) error {
	v, err := r.load(register, 2)
	if err != nil || v.constant == nil {
		return errUnknown
	}
	zone := interception.SetZone{Zone: binary.NativeEndian.Uint16(v.constant)}
	for _, d := range []interception.Direction{interception.DirectionOriginal, interception.DirectionReply} {
		if zone.Zone != 0 && len(direction) == 1 && direction[0] == directionNumber(d) { // zone 0 is the default in both directions
			zone.Direction = d
		}
	}
	return r.do(zone)
}

func (r *reading) setConntrack(key, register uint32) error {
	v, err := r.loadAny(register, 4)
	switch {
	case err != nil || key != unix.NFT_CT_MARK:
		return errUnknown
	case v.merged != nil:
		mask, err := copied(v, metaField(unix.NFT_META_MARK), field{source: "ct", key: unix.NFT_CT_MARK})
		if err != nil {
			return err
		}
		return r.do(interception.SaveMark{Mask: mask})
	case v.field == metaField(unix.NFT_META_MARK) && v.mask == nil:
		return r.do(interception.SaveMark{})
	}
	mark, err := written(v, field{source: "ct", key: unix.NFT_CT_MARK})
	if err != nil {
		return err
	}
	return r.do(interception.SetConnMark{Mark: mark})
}

// copied returns the bits that are copied from one mark to another when the other's new value is v.
func copied(v value, from, to field) (interception.Mark, error) {
	one, other := v, *v.merged
	if one.field == from {
		one, other = other, one
	}
	kept, taken := binary.NativeEndian.Uint32(one.mask), binary.NativeEndian.Uint32(other.mask)
	changed := binary.NativeEndian.Uint32(one.xor) | binary.NativeEndian.Uint32(other.xor)
	if one.field != to || other.field != from || kept != ^taken || changed != 0 || taken == 0 || kept == 0 {
		return 0, errUnknown
	}
	return interception.Mark(taken), nil
}

// written returns the bits of a mark that are written when its new value is v: a constant, or the
// old value with some bits changed.
func written(v value, old field) (interception.MarkBits, error) {
	if v.constant != nil {
		return interception.WholeMark(interception.Mark(binary.NativeEndian.Uint32(v.constant))), nil
	}
	if v.field != old || v.mask == nil {
		return interception.MarkBits{}, errUnknown
	}
	kept, set := interception.Mark(binary.NativeEndian.Uint32(v.mask)), interception.Mark(binary.NativeEndian.Uint32(v.xor))
	if kept&set != 0 || kept == wholeMask {
		return interception.MarkBits{}, errUnknown
	}
	return interception.MarkBits{Value: set, Mask: ^kept}, nil
}
