// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// The registers, of 16 bytes each. Actions with two operands use the second one as well.
const (
	register       = unix.NFT_REG_1
	secondRegister = unix.NFT_REG_2
)

// ruleWriter collects a rule's expressions: each condition loads a field into the register, and the
// rule goes on only if the field exists and meets the condition. The action comes last.
type ruleWriter struct {
	t           *transaction
	expressions []expression
	family      interception.Family // checked already
}

// expressions returns those of a rule, in memory that the next call reuses. It adds the sets that
// they need to the transaction.
func (t *transaction) expressions(r lower.Rule) []expression {
	w := &ruleWriter{t: t, expressions: t.room[:0]}
	m := r.Match
	w.checkFamily(m.Family)
	w.interfaces(unix.NFT_META_IIFNAME, m.In)
	w.interfaces(unix.NFT_META_OIFNAME, m.Out)
	family := m.EffectiveFamily()
	w.addresses(family, source, m.Src)
	w.addressSet(family, source, m.SrcSet)
	w.addresses(family, destination, m.Dst)
	w.addressSet(family, destination, m.DstSet)
	w.transport(m.L4)
	numbers(w, uidKey(), m.UID, interception.UIDSet.Ranges, func() expression { return meta(unix.NFT_META_SKUID) })
	numbers(w, gidKey(), m.GID, interception.GIDSet.Ranges, func() expression { return meta(unix.NFT_META_SKGID) })
	w.mark(packetMark(), m.Mark)
	w.mark(connectionMark(), m.ConnMark)
	w.state(m.State)
	w.goes(m.Direction)
	w.action(r)
	t.room = w.expressions
	return w.expressions
}

func (w *ruleWriter) add(e ...expression) { w.expressions = append(w.expressions, e...) }

// test compares a field, which load puts into the register, with values: a single value by
// comparison, several by lookup in a set.
func (w *ruleWriter) test(k key, negated bool, spans []span, load expression) {
	w.add(load)
	single := len(spans) == 1
	values := !slices.ContainsFunc(spans, func(s span) bool { return !s.single() })
	if k.hostOrder && !values { // ranges are compared byte by byte, the highest first
		w.add(toNetworkOrder(k.length))
	}
	switch {
	case single && values:
		w.add(compare(equality(negated), k.value(spans[0].first)))
	case single && negated:
		w.add(outside(spans[0].first, spans[0].last))
	case single:
		w.add(compare(unix.NFT_CMP_GTE, spans[0].first))
		w.add(compare(unix.NFT_CMP_LTE, spans[0].last))
	default:
		w.add(lookup(anonymousName, w.t.addAnonymousSet(k, spans, !values), negated))
	}
}

func equality(negated bool) uint32 {
	if negated {
		return unix.NFT_CMP_NEQ
	}
	return unix.NFT_CMP_EQ
}

// checkFamily restricts the rule to one family, as loading addresses in a table of inet requires.
func (w *ruleWriter) checkFamily(family interception.Family) {
	if family == interception.BothFamilies || family == w.family {
		return
	}
	w.family = family
	w.add(meta(unix.NFT_META_NFPROTO))
	w.add(compare(unix.NFT_CMP_EQ, []byte{protocolFamily(family)}))
}

func (w *ruleWriter) interfaces(k uint32, c interception.Condition[interception.InterfaceSet]) {
	if !c.Present() {
		return
	}
	names, patterns := lower.InterfaceNames(c.Set())
	var spans []span
	for _, name := range names {
		value := make([]byte, unix.IFNAMSIZ)
		copy(value, name)
		spans = append(spans, span{value, value})
	}
	if len(spans) > 0 {
		w.test(interfaceKey(), c.Negated(), spans, meta(k))
	}
	for _, pattern := range patterns { // negated patterns, and all have to hold ([lower.Chains])
		w.add(meta(k))
		w.add(compare(equality(c.Negated()), []byte(strings.TrimSuffix(string(pattern), "*"))))
	}
}

func (w *ruleWriter) transport(l interception.L4) {
	if l.Protocol() == interception.AnyProtocol {
		return
	}
	w.add(meta(unix.NFT_META_L4PROTO))
	w.add(compare(unix.NFT_CMP_EQ, []byte{byte(l.Protocol())}))
	numbers(w, portKey(), l.SrcPort(), interception.PortSet.Ranges, func() expression { return payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2) })
	numbers(w, portKey(), l.DstPort(), interception.PortSet.Ranges, func() expression { return payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2) })
	w.flags(l.TCPFlags())
}

func numbers[S interception.Operand, N ~uint16 | ~uint32](
	w *ruleWriter, k key, c interception.Condition[S], ranges func(S) []interception.Range[N], load func() expression,
) {
	if !c.Present() {
		return
	}
	var spans []span
	for _, r := range ranges(c.Set()) {
		spans = append(spans, span{k.network(uint32(r.First)), k.network(uint32(r.Last))})
	}
	w.test(k, c.Negated(), spans, load())
}

// describe returns a readable text for expressions: their names, with what is easy to describe.
// Different expressions have different texts, as the rest follows in hexadecimal.
func describe(expressions []expression) string {
	var words []string
	for _, e := range expressions {
		if e.name != "counter" { // its value changes all the time, and decides nothing
			words = append(words, e.String())
		}
	}
	if words == nil {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// String returns a text such as "lookup @blocked", "target REDIRECT 0a0b" or "queue".
func (e expression) String() string {
	a := parseAttributes(e.data)
	switch e.name {
	case "immediate":
		return e.immediateText(a)
	case "target", "match": // extensions of iptables; both number their attributes alike
		return fmt.Sprintf("%s %s %s", e.name, printable(a.text(unix.NFTA_TARGET_NAME)), hex.EncodeToString(a.take(unix.NFTA_TARGET_INFO)))
	case "lookup":
		return e.lookupText(a)
	case "cmp":
		op := a.number(unix.NFTA_CMP_OP)
		if ops := []string{"==", "!=", "<", "<=", ">", ">="}; int(op) < len(ops) {
			return fmt.Sprintf("cmp %s 0x%s", ops[op], hex.EncodeToString(a.value(unix.NFTA_CMP_DATA)))
		}
	}
	if len(e.data) == 0 {
		return printable(e.name)
	}
	return printable(e.name) + " 0x" + hex.EncodeToString(e.data)
}

func (e expression) immediateText(a *attributes) string {
	register, data := a.number(unix.NFTA_IMMEDIATE_DREG), parseAttributes(a.take(unix.NFTA_IMMEDIATE_DATA))
	if !data.has(unix.NFTA_DATA_VERDICT) {
		return fmt.Sprintf("0x%s into register %d", hex.EncodeToString(data.take(unix.NFTA_DATA_VALUE)), register)
	}
	verdict := parseAttributes(data.take(unix.NFTA_DATA_VERDICT))
	code, chain := int32(verdict.number(unix.NFTA_VERDICT_CODE)), verdict.text(unix.NFTA_VERDICT_CHAIN)
	word, ok := map[int32]string{
		verdictDrop: "drop", verdictAccept: "accept", verdictReturn: "return", verdictJump: "jump", -4: "goto", -1: "continue", 3: "queue",
	}[code]
	if !ok {
		word = fmt.Sprintf("verdict 0x%x", uint32(code))
	}
	if chain != "" {
		word += " " + printable(chain)
	}
	return word
}

func (e expression) lookupText(a *attributes) string {
	text := "lookup @" + printable(a.text(unix.NFTA_LOOKUP_SET))
	if a.number(unix.NFTA_LOOKUP_FLAGS) != 0 {
		text = "lookup not @" + printable(a.text(unix.NFTA_LOOKUP_SET))
	}
	if a.has(unix.NFTA_LOOKUP_DREG) {
		text += " as a map"
	}
	return text
}

// printable returns text that any program may have chosen; quoted unless its characters are plain.
func printable(text string) string {
	if quoted := strconv.QuoteToASCII(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
