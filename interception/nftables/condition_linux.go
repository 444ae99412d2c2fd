// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// compare follows a comparison. "At least" begins a range, which the next expression ends.
func (r *reading) compare(a *attributes, next []expression) (n int, err error) {
	register, op, data := a.number(unix.NFTA_CMP_SREG), a.number(unix.NFTA_CMP_OP), a.value(unix.NFTA_CMP_DATA)
	if op == unix.NFT_CMP_EQ || op == unix.NFT_CMP_NEQ {
		return 1, r.test(register, data, op == unix.NFT_CMP_NEQ)
	}
	if op != unix.NFT_CMP_GTE || len(next) == 0 || next[0].name != "cmp" {
		return 1, errUnknown
	}
	b := parseAttributes(next[0].data)
	same := b.number(unix.NFTA_CMP_SREG) == register && b.number(unix.NFTA_CMP_OP) == unix.NFT_CMP_LTE
	last := b.value(unix.NFTA_CMP_DATA)
	if !same || !b.whole() {
		return 1, errUnknown
	}
	return 2, r.within(register, []span{{data, last}}, false)
}

func (r *reading) inRange(a *attributes) error {
	from, to := a.value(unix.NFTA_RANGE_FROM_DATA), a.value(unix.NFTA_RANGE_TO_DATA)
	op := a.number(unix.NFTA_RANGE_OP)
	if op != unix.NFT_CMP_EQ && op != unix.NFT_CMP_NEQ {
		return errUnknown
	}
	return r.within(a.number(unix.NFTA_RANGE_SREG), []span{{from, to}}, op == unix.NFT_CMP_NEQ)
}

// within adds the condition that the value in a register is in one of the ranges, in network order.
func (r *reading) within(register uint32, spans []span, negated bool) error {
	for _, s := range spans {
		if len(s.first) == 0 || len(s.first) != len(s.last) || bytes.Compare(s.first, s.last) > 0 {
			return errUnknown
		}
	}
	v, err := r.load(register, len(spans[0].first))
	if err != nil || v.mask != nil {
		return errUnknown
	}
	if !v.network && v.source != "payload" {
		return errUnknown
	}
	return r.spans(v, spans, negated)
}

// lookup adds the condition that the value in a register is in a set.
func (r *reading) lookup(a *attributes) error {
	name, register, flags := a.text(unix.NFTA_LOOKUP_SET), a.number(unix.NFTA_LOOKUP_SREG), a.number(unix.NFTA_LOOKUP_FLAGS)
	set, ok := r.set(name)
	if !ok || flags&^unix.NFT_LOOKUP_F_INV != 0 {
		return errUnknown
	}
	a.take(unix.NFTA_LOOKUP_SET_ID) // only transactions have it
	negated := flags != 0
	if r.named == nil && set.flags&unix.NFT_SET_CONSTANT == 0 {
		return r.foreignSet(register, set, negated)
	}
	if ref, ok := r.planned(set); ok {
		v, err := r.load(register, int(set.keyLength))
		if err != nil {
			return err
		}
		return r.reference(v, ref, negated)
	}
	spans, ok := set.spans()
	if !ok || set.flags&unix.NFT_SET_CONSTANT == 0 || len(spans) == 0 {
		return errUnknown
	}
	if set.flags&unix.NFT_SET_INTERVAL != 0 {
		return r.within(register, spans, negated)
	}
	return r.oneOf(register, spans, negated)
}

// planned returns the plan's set for a set.
func (r *reading) planned(set *kernelSet) (planSet, bool) {
	if r.named == nil {
		return planSet{}, false
	}
	return r.named(set)
}

// foreignSet notes that the destination has to be in a set of another program, which can change.
func (r *reading) foreignSet(register uint32, set *kernelSet, negated bool) error {
	v, err := r.load(register, int(set.keyLength))
	if err != nil || negated || set.strange != "" || r.to != "" || len(r.actions) > 0 {
		return errUnknown
	}
	d, ok := r.direction(v.field)
	if !ok || d != destination || v.mask != nil || v.length != addressKey(r.family).length {
		return errUnknown
	}
	r.to = set.name
	return nil
}

// oneOf adds the condition that the value in a register is one of the values.
func (r *reading) oneOf(register uint32, values []span, negated bool) error {
	v, err := r.load(register, len(values[0].first))
	if err != nil || v.network {
		return errUnknown
	}
	if v.mask != nil {
		return r.networks(v, values, negated)
	}
	if v.source == "meta" && v.length == 4 {
		for i, s := range values { // in host order
			number := networkNumber(s.first)
			values[i] = span{number, number}
		}
	}
	return r.spans(v, values, negated)
}

func networkNumber(host []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, binary.NativeEndian.Uint32(host))
}

// test adds the condition that the value in a register equals data.
func (r *reading) test(register uint32, data []byte, negated bool) error {
	offset, err := at(register)
	v := r.registers[offset]
	if err != nil || v == nil || len(data) == 0 || len(data) > int(v.length) { // a name may be compared in part
		return errUnknown
	}
	if v.isName() {
		v.used = true
		return r.name(*v, data, negated)
	}
	loaded, err := r.load(register, len(data))
	if err != nil || loaded.network {
		return errUnknown
	}
	switch loaded.source {
	case "meta":
		return r.testMeta(loaded, data, negated)
	case "ct":
		return r.testConntrack(loaded, data, negated)
	case "payload":
		return r.testPayload(loaded, data, negated)
	default:
		return errUnknown
	}
}

func (v value) isName() bool {
	return v.field == metaField(unix.NFT_META_IIFNAME) || v.field == metaField(unix.NFT_META_OIFNAME)
}

func (r *reading) testConntrack(v value, data []byte, negated bool) error {
	switch v.key {
	case unix.NFT_CT_STATE:
		return r.state(v, data, negated)
	case unix.NFT_CT_DIRECTION:
		return r.goes(v, data[0], negated)
	default:
		return r.mark(&r.match.ConnMark, v, data, negated)
	}
}

// goes adds the condition on a packet's direction. The negation of one direction is the other.
func (r *reading) goes(v value, number byte, negated bool) error {
	if v.mask != nil || r.match.Direction != interception.AnyDirection || len(r.actions) > 0 {
		return errUnknown
	}
	for _, d := range []interception.Direction{interception.DirectionOriginal, interception.DirectionReply} {
		if number <= 1 && (directionByte(d) == number) != negated {
			r.match.Direction = d
			return nil
		}
	}
	return errUnknown
}

func (r *reading) testMeta(v value, data []byte, negated bool) error {
	switch {
	case v.field == metaField(unix.NFT_META_MARK):
		return r.mark(&r.match.Mark, v, data, negated)
	case v.mask != nil:
		return errUnknown
	case v.field == metaField(unix.NFT_META_NFPROTO) && !negated:
		return r.ofFamily(data[0])
	case v.field == metaField(unix.NFT_META_L4PROTO) && !negated:
		return r.ofProtocol(data[0])
	case len(data) != 4:
		return errUnknown
	}
	number := networkNumber(data) // the owner's
	return r.spans(v, []span{{number, number}}, negated)
}

func (r *reading) testPayload(v value, data []byte, negated bool) error {
	switch {
	case r.bothEnds(v):
		if negated || v.mask != nil {
			return errUnknown
		}
		return r.ends(v, data)
	case v.field == field{source: "payload", key: unix.NFT_PAYLOAD_TRANSPORT_HEADER, offset: 13}:
		return r.flags(v, data, negated)
	case v.key == unix.NFT_PAYLOAD_NETWORK_HEADER:
		return r.leading(v, data, negated)
	case v.mask != nil:
		return errUnknown
	}
	return r.spans(v, []span{{data, data}}, negated)
}

// bothEnds reports whether source and destination were loaded together, as nft does where it can.
func (r *reading) bothEnds(v value) bool {
	d, ok := r.direction(v.field)
	addresses := ok && d == source && v.length == 2*addressKey(r.family).length
	return addresses || v.field == field{source: "payload", key: unix.NFT_PAYLOAD_TRANSPORT_HEADER} && v.length == 4
}

// ends adds the condition that source and destination are the halves of data.
func (r *reading) ends(v value, data []byte) error {
	half := len(data) / 2
	first, second := v, v
	first.length, second.length = v.length/2, v.length/2
	second.offset += v.length / 2
	if err := r.spans(first, []span{{data[:half], data[:half]}}, false); err != nil {
		return err
	}
	return r.spans(second, []span{{data[half:], data[half:]}}, false)
}

func metaField(key uint32) field { return field{source: "meta", key: uint32(key)} }

// condition adds a condition to the match, unless it has one of the kind.
func condition[S interception.Operand](r *reading, c *interception.Condition[S], set S, negated bool) error {
	if c.Present() || len(r.actions) > 0 || set.IsEmpty() {
		return errUnknown
	}
	*c = interception.Is(set)
	if negated {
		*c = interception.Not(set)
	}
	return nil
}

func (r *reading) ofFamily(protocol byte) error {
	family := map[byte]interception.Family{unix.NFPROTO_IPV4: interception.IPv4, unix.NFPROTO_IPV6: interception.IPv6}[protocol]
	if family == interception.BothFamilies || len(r.actions) > 0 || r.family != interception.BothFamilies && r.family != family {
		return errUnknown
	}
	r.family, r.match.Family = family, family
	return nil
}

func (r *reading) ofProtocol(number byte) error {
	known := map[byte]interception.L4{byte(interception.ProtocolTCP): interception.TCP(), byte(interception.ProtocolUDP): interception.UDP()}
	l4, ok := known[number]
	has := r.match.L4.Protocol()
	switch {
	case !ok || len(r.actions) > 0 || has != interception.AnyProtocol && has != l4.Protocol():
		return errUnknown
	case has == interception.AnyProtocol:
		r.match.L4 = l4
	}
	return nil
}

// name adds the condition that an interface's name is data or, if data has no NUL, begins so.
func (r *reading) name(v value, data []byte, negated bool) error {
	text := string(bytes.TrimRight(data, "\x00"))
	pattern := text
	if len(text) == len(data) {
		pattern += "*"
	}
	// Validate refuses patterns, and names with bytes after the NUL.
	if interception.Interface(text).Validate() != nil || v.mask != nil {
		return errUnknown
	}
	c := &r.match.In
	if v.field == metaField(unix.NFT_META_OIFNAME) {
		c = &r.match.Out
	}
	names := interception.Interfaces(interception.Interface(pattern))
	if negated && c.Present() && c.Negated() && len(r.actions) == 0 { // consecutive conditions, and all of them hold
		*c = interception.Not(interception.Interfaces(append(c.Set().Names(), names.Names()...)...))
		return nil
	}
	return condition(r, c, names, negated)
}

func (r *reading) mark(c *interception.Condition[interception.MarkBits], v value, data []byte, negated bool) error {
	bits := interception.WholeMark(interception.Mark(binary.NativeEndian.Uint32(data)))
	if v.mask != nil {
		bits.Mask = interception.Mark(binary.NativeEndian.Uint32(v.mask))
	}
	if !zero(v.xor) || bits.Value&^bits.Mask != 0 {
		return errUnknown
	}
	return condition(r, c, bits, negated)
}

func (r *reading) state(v value, data []byte, negated bool) error {
	if v.mask == nil || !zero(v.xor) || !zero(data) {
		return errUnknown
	}
	mask := binary.NativeEndian.Uint32(v.mask)
	var states interception.ConnState
	for state := interception.StateNew; state <= interception.StateUntracked; state <<= 1 {
		if bit := stateBits(state); mask&bit != 0 {
			states |= state
			mask &^= bit
		}
	}
	if mask != 0 {
		return errUnknown
	}
	return condition(r, &r.match.State, states, !negated) // "in no state" is equal to 0
}

func (r *reading) flags(v value, data []byte, negated bool) error {
	flags := interception.TCPFlags{Set: interception.TCPFlag(data[0])}
	if v.mask != nil {
		flags.Mask = interception.TCPFlag(v.mask[0])
	}
	known := v.length == 1 && flags.Mask != 0 && flags.Mask < 1<<6 && flags.Set&^flags.Mask == 0 && zero(v.xor)
	if !known || r.match.L4.Protocol() != interception.ProtocolTCP || r.match.L4.TCPFlags().Present() || len(r.actions) > 0 {
		return errUnknown
	}
	if negated {
		r.match.L4 = r.match.L4.NotFlags(flags)
	} else {
		r.match.L4 = r.match.L4.Flags(flags)
	}
	return nil
}

// leading adds the condition that an address begins with the bytes or bits that were loaded of it.
func (r *reading) leading(v value, data []byte, negated bool) error {
	d, ok := r.direction(v.field)
	length := int(addressKey(r.family).length)
	if !ok || int(v.length) > length {
		return r.protocolField(v, data, negated)
	}
	whole, _ := netip.AddrFromSlice(append(bytes.Clone(data), make([]byte, length-len(data))...))
	prefix := netip.PrefixFrom(whole, 8*len(data))
	if v.mask != nil {
		bits, leads := v.leadingBits()
		prefix = netip.PrefixFrom(whole, bits)
		if int(v.length) != length || !leads || prefix.Masked() != prefix {
			return errUnknown
		}
	}
	return r.addresses(d, []span{spanOf(prefix)}, negated)
}

// protocolField adds the condition on the IPv4 header's protocol, where iptables looks for it.
func (r *reading) protocolField(v value, data []byte, negated bool) error {
	if r.family != interception.IPv4 || v.offset != 9 || len(data) != 1 || v.mask != nil || negated {
		return errUnknown
	}
	return r.ofProtocol(data[0])
}

func zero(data []byte) bool { return len(bytes.Trim(data, "\x00")) == 0 }

// direction returns which address of the rule's family begins at a place in the network header.
func (r *reading) direction(f field) (direction, bool) {
	if r.family == interception.BothFamilies || f.source != "payload" || f.key != unix.NFT_PAYLOAD_NETWORK_HEADER {
		return 0, false
	}
	for _, d := range []direction{source, destination} {
		if d.offset(r.family) == f.offset {
			return d, true
		}
	}
	return 0, false
}

func (r *reading) reference(v value, set planSet, negated bool) error {
	d, ok := r.direction(v.field)
	bits, leads := v.leadingBits()
	if !ok || !leads || bits != set.bits || set.Family != r.family {
		return errUnknown
	}
	if d == source {
		return condition(r, &r.match.SrcSet, set.SetRef, negated)
	}
	return condition(r, &r.match.DstSet, set.SetRef, negated)
}

// networks adds the condition that the leading bits of an address are one of the values.
func (r *reading) networks(v value, values []span, negated bool) error {
	d, ok := r.direction(v.field)
	bits, leads := v.leadingBits()
	if !ok || !leads || v.length != addressKey(r.family).length {
		return errUnknown
	}
	spans, _ := underMask(values, bits)
	if len(spans) == 0 {
		return errUnknown
	}
	return r.addresses(d, spans, negated)
}

// leadingBits returns how many bits the mask keeps; ok is false unless these are the leading bits.
func (v value) leadingBits() (bits int, ok bool) {
	if v.mask == nil {
		return 8 * int(v.length), true
	}
	ones, all := net.IPMask(v.mask).Size() // 0 and 0 unless the mask is a prefix
	return ones, all != 0 && zero(v.xor)
}

// underMask returns, for each address, the range of addresses with its leading bits. Addresses with
// other bits set never match, and are left out; all reports whether there were no such addresses.
func underMask(addresses []span, bits int) (spans []span, all bool) {
	for _, s := range addresses {
		address, _ := netip.AddrFromSlice(s.first)
		if prefix := netip.PrefixFrom(address, bits); s.single() && prefix.Masked() == prefix {
			spans = append(spans, spanOf(prefix))
		}
	}
	return spans, len(spans) == len(addresses)
}

// spanOf returns the addresses of a prefix.
func spanOf(p netip.Prefix) span { return span{p.Addr().AsSlice(), lower.LastAddress(p).AsSlice()} }

func (r *reading) addresses(d direction, spans []span, negated bool) error {
	if d == source {
		return condition(r, &r.match.Src, prefixesOf(spans), negated)
	}
	return condition(r, &r.match.Dst, prefixesOf(spans), negated)
}

func (r *reading) names(v value, spans []span, negated bool) error {
	var names []interception.Interface
	for _, s := range spans {
		name := interception.Interface(strings.TrimRight(string(s.first), "\x00"))
		if !s.single() || name.Validate() != nil {
			return errUnknown
		}
		names = append(names, name)
	}
	c := &r.match.In
	if v.field == metaField(unix.NFT_META_OIFNAME) {
		c = &r.match.Out
	}
	return condition(r, c, interception.Interfaces(names...), negated)
}

// spans adds the condition that an unchanged value is in one of the ranges, in network order.
func (r *reading) spans(v value, spans []span, negated bool) error {
	if d, ok := r.direction(v.field); ok && v.length == addressKey(r.family).length {
		return r.addresses(d, spans, negated)
	}
	switch v.field {
	case metaField(unix.NFT_META_IIFNAME), metaField(unix.NFT_META_OIFNAME):
		return r.names(v, spans, negated)
	case metaField(unix.NFT_META_SKUID):
		return condition(r, &r.match.UID, numbersOf[interception.UID](spans), negated)
	case metaField(unix.NFT_META_SKGID):
		return condition(r, &r.match.GID, numbersOf[interception.GID](spans), negated)
	}
	return r.ports(v, spans, negated)
}

func (r *reading) ports(v value, spans []span, negated bool) error {
	transport := v.source == "payload" && v.key == unix.NFT_PAYLOAD_TRANSPORT_HEADER && v.length == 2
	if !transport || r.match.L4.Protocol() == interception.AnyProtocol {
		return errUnknown
	}
	l4, ports := r.match.L4, numbersOf[interception.Port](spans)
	var c interception.Condition[interception.PortSet]
	switch v.offset {
	case 0:
		if c = l4.SrcPort(); negated {
			l4 = l4.NotFrom(ports)
		} else {
			l4 = l4.From(ports)
		}
	case 2:
		if c = l4.DstPort(); negated {
			l4 = l4.NotTo(ports)
		} else {
			l4 = l4.To(ports)
		}
	default:
		return errUnknown
	}
	if err := condition(r, &c, ports, negated); err != nil {
		return err
	}
	r.match.L4 = l4
	return nil
}
