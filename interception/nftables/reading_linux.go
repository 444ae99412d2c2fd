// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// field is what a rule has loaded into a register.
type field struct {
	source string // "meta", "ct", "payload", or "" for a constant
	key    uint32 // of meta and ct; the base of payload
	offset uint32 // of payload
}

// value is the content of a register.
type value struct {
	field
	length    uint32
	constant  []byte
	mask, xor []byte // by bitwise, if there is a mask
	network   bool   // converted from host order to network order
	used      bool   // a condition or an action has used it
	merged    *value // whose bits it has, too
}

// reading decodes one rule: it follows the expressions as the kernel does, with what is known of
// the registers in place of their contents. What it does not fully understand is an error; match
// then has what was understood before.
type reading struct {
	followers map[string]func(*reading, *attributes) error
	set       func(name string) (*kernelSet, bool)
	named     func(set *kernelSet) (planSet, bool) // finds the plan's set for a set; nil in other programs' tables
	family    interception.Family                  // of the packets that get this far, if known
	registers map[uint32]*value                    // by their offsets in bytes
	match     interception.Match
	to        string // the other program's set that has to have the destination; empty if none
	actions   []interception.Action
}

// errUnknown means that no rule of a plan has this expression, or not in this place.
var errUnknown = errors.New("unknown expression")

// tproxy is the first half of TProxyTo; the mark is the other half.
type tproxy struct {
	interception.Action

	port   interception.Port
	family uint32
}

// decode decodes the rule. It returns the expressions from the first unknown one, which a lookup in
// another program's set is, too.
func (r *reading) decode(expressions []expression) (rest []expression) {
	r.registers = map[uint32]*value{}
	done, understood := 0, r.match
	for i := 0; i < len(expressions); {
		n, err := r.step(expressions[i:])
		if err != nil {
			r.match, r.actions = understood, nil
			return expressions[done:]
		}
		if i += n; r.settled() && len(r.actions) == 0 && r.to == "" {
			done, understood = i, r.match
		}
	}
	if err := r.finish(); err != nil {
		r.match, r.actions = understood, nil
		return expressions[done:]
	}
	if r.to != "" {
		return expressions[done:]
	}
	return nil
}

// rule returns the decoded rule. Its action is [interception.Opaque] when a part was not
// understood, or when the rule does nothing.
func (t *kernelTable) rule(k kernelRule, named func(*kernelSet) (planSet, bool)) interception.Rule {
	r := reading{followers: followers(), set: t.set, named: named}
	switch t.family {
	case unix.NFPROTO_IPV4:
		r.family = interception.IPv4
	case unix.NFPROTO_IPV6:
		r.family = interception.IPv6
	}
	r.match.Family = r.family
	rest := r.decode(k.expressions)
	rule := interception.Rule{Match: r.match}
	// An address implies the family.
	if rule.Match.Family = interception.BothFamilies; rule.Match.EffectiveFamily() == interception.BothFamilies {
		rule.Match.Family = r.match.Family
	}
	rule.ID, _, rule.Why, _ = lower.ParseComment(k.comment)
	switch {
	case len(r.actions) == 0:
		rule.Action = interception.Opaque{Text: describe(rest)}
	case r.to != "":
		rule.Action = interception.Opaque{Text: describe(rest), To: printable(r.to), Then: r.actions[0]}
	default:
		rule.Action = r.actions[0]
	}
	return rule
}

// settled reports whether all that was loaded was also used: a load whose field is missing ends the
// rule, so it is a condition of its own.
func (r *reading) settled() bool {
	for _, v := range r.registers {
		if !v.used {
			return false
		}
	}
	return true
}

// step follows one expression, or both where two make one condition.
func (r *reading) step(e []expression) (n int, err error) {
	name, a := e[0].name, parseAttributes(e[0].data)
	follow, known := r.followers[name]
	switch {
	case name == "counter": // decides nothing
		return 1, nil
	case name == "cmp":
		n, err = r.compare(a, e[1:])
	case known:
		n, err = 1, follow(r, a)
	default:
		return 1, errUnknown
	}
	if err == nil && !a.whole() {
		err = errUnknown
	}
	return n, err
}

// followers returns the functions for the expressions that are decoded by themselves, by their
// names: conditions, loads and changes of registers, and actions.
func followers() map[string]func(*reading, *attributes) error {
	return map[string]func(*reading, *attributes) error{
		"range": (*reading).inRange, "lookup": (*reading).lookup,
		"meta": (*reading).meta, "ct": (*reading).conntrack, "payload": (*reading).payload,
		"bitwise": (*reading).bitwise, "byteorder": (*reading).byteorder,
		"immediate": (*reading).immediate, "redir": (*reading).redirect, "nat": (*reading).nat, "tproxy": (*reading).tproxy,
		"reject": (*reading).reject, "log": (*reading).log, "notrack": (*reading).notrack,
	}
}

// at returns the offset of a register in the register file, in bytes: the first registers have 16
// bytes each, the following ones four.
func at(register uint32) (uint32, error) {
	switch {
	case register >= unix.NFT_REG_1 && register <= unix.NFT_REG_4:
		return 16 * (register - unix.NFT_REG_1), nil
	case register >= unix.NFT_REG32_00 && register <= unix.NFT_REG32_15:
		return 4 * (register - unix.NFT_REG32_00), nil
	default:
		return 0, errUnknown
	}
}

// store puts a value into a register. A value that it overwrites must have been used.
func (r *reading) store(register uint32, v value) error {
	offset, err := at(register)
	if err != nil || v.length == 0 || v.length > 64 {
		return errUnknown
	}
	for other, old := range r.registers {
		if other < offset+v.length && offset < other+old.length {
			if !old.used {
				return errUnknown
			}
			delete(r.registers, other)
		}
	}
	r.registers[offset] = &v
	return nil
}

// load uses the value in a register, which must have that length and be of one field.
func (r *reading) load(register uint32, length int) (value, error) {
	v, err := r.loadAny(register, length)
	if err == nil && v.merged != nil {
		err = errUnknown
	}
	return v, err
}

// loadAny uses the value in a register, which must have that length.
func (r *reading) loadAny(register uint32, length int) (value, error) {
	offset, err := at(register)
	if err != nil {
		return value{}, err
	}
	v, ok := r.registers[offset]
	if !ok || int64(v.length) != int64(length) {
		return value{}, errUnknown
	}
	v.used = true
	return *v, nil
}

func (r *reading) meta(a *attributes) error {
	key := a.number(unix.NFTA_META_KEY)
	if a.has(unix.NFTA_META_SREG) {
		return r.setMeta(key, a.number(unix.NFTA_META_SREG))
	}
	lengths := map[uint32]uint32{
		unix.NFT_META_IIFNAME: unix.IFNAMSIZ, unix.NFT_META_OIFNAME: unix.IFNAMSIZ, unix.NFT_META_NFPROTO: 1,
		unix.NFT_META_L4PROTO: 1, unix.NFT_META_SKUID: 4, unix.NFT_META_SKGID: 4, unix.NFT_META_MARK: 4,
	}
	return r.store(a.number(unix.NFTA_META_DREG), value{field: field{source: "meta", key: key}, length: lengths[key]})
}

func (r *reading) conntrack(a *attributes) error {
	key := a.number(unix.NFTA_CT_KEY)
	switch {
	case a.has(unix.NFTA_CT_SREG) && key == unix.NFT_CT_ZONE:
		return r.setZone(a.number(unix.NFTA_CT_SREG), a.take(unix.NFTA_CT_DIRECTION))
	case a.has(unix.NFTA_CT_SREG):
		return r.setConntrack(key, a.number(unix.NFTA_CT_SREG))
	}
	length, known := map[uint32]uint32{unix.NFT_CT_STATE: 4, unix.NFT_CT_MARK: 4, unix.NFT_CT_DIRECTION: 1}[key]
	if !known {
		return errUnknown
	}
	return r.store(a.number(unix.NFTA_CT_DREG), value{field: field{source: "ct", key: key}, length: length})
}

func (r *reading) payload(a *attributes) error {
	f := field{source: "payload", key: a.number(unix.NFTA_PAYLOAD_BASE), offset: a.number(unix.NFTA_PAYLOAD_OFFSET)}
	length := a.number(unix.NFTA_PAYLOAD_LEN)
	if length > 32 || f.offset > math.MaxUint16 || !a.has(unix.NFTA_PAYLOAD_DREG) {
		return errUnknown
	}
	return r.store(a.number(unix.NFTA_PAYLOAD_DREG), value{field: f, length: length})
}

func (r *reading) bitwise(a *attributes) error {
	length, operation := a.number(unix.NFTA_BITWISE_LEN), a.number(bitwiseOperation)
	if operation == bitwiseOr && length == 4 {
		return r.merge(a)
	}
	mask, xor := a.value(unix.NFTA_BITWISE_MASK), a.value(unix.NFTA_BITWISE_XOR)
	if length > 16 || operation != 0 || len(mask) != int(length) || len(xor) != int(length) {
		return errUnknown
	}
	v, err := r.load(a.number(unix.NFTA_BITWISE_SREG), int(length))
	if err != nil || v.mask != nil || v.network || v.source == "" {
		return errUnknown
	}
	v.mask, v.xor, v.used = mask, xor, false
	return r.store(a.number(unix.NFTA_BITWISE_DREG), v)
}

// merge follows an expression that merges the bits of two registers.
func (r *reading) merge(a *attributes) error {
	first, err := r.load(a.number(unix.NFTA_BITWISE_SREG), 4)
	second, err2 := r.load(a.number(bitwiseSecond), 4)
	if err != nil || err2 != nil || first.mask == nil || second.mask == nil || first.network || second.network {
		return errUnknown
	}
	first.merged, first.used = &second, false
	return r.store(a.number(unix.NFTA_BITWISE_DREG), first)
}

func (r *reading) byteorder(a *attributes) error {
	length, size := a.number(unix.NFTA_BYTEORDER_LEN), a.number(unix.NFTA_BYTEORDER_SIZE)
	if length != 4 || size != 4 || a.number(unix.NFTA_BYTEORDER_OP) != unix.NFT_BYTEORDER_HTON {
		return errUnknown
	}
	v, err := r.load(a.number(unix.NFTA_BYTEORDER_SREG), 4)
	if err != nil || v.mask != nil || v.network || v.source != "meta" {
		return errUnknown
	}
	v.network, v.used = true, false
	return r.store(a.number(unix.NFTA_BYTEORDER_DREG), v)
}
