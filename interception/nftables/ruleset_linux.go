// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

type kernelTable struct {
	family uint8
	name   string
	flags  uint32
	chains []kernelChain
	sets   []kernelSet
}

// dormant is NFT_TABLE_F_DORMANT: no packet meets the table's chains.
const dormant = 1

type kernelChain struct {
	table, name string
	base        bool
	kind        string // of a base chain: "filter", "nat" or "route"
	hook        uint32
	priority    int32
	policy      uint32
	rules       []kernelRule
}

type kernelRule struct {
	table, chain string
	expressions  []expression
	comment      string
}

// kernelSet is a set in the kernel. The elements are read on request.
type kernelSet struct {
	name      string
	flags     uint32
	keyLength uint32
	strange   string // describes what no set of a plan has
	comment   string
	elements  []kernelElement
}

type kernelElement struct {
	key, last []byte // last is set when the element is itself a range
	end       bool   // the interval ends before key
	comment   string
	strange   bool // no element of a plan's set is like this
}

// hasTable reports whether the owner's table is known to exist.
func hasTable(socket *nfnetlink.Socket, owner interception.Owner) bool {
	messages, err := askTable(socket, unix.NFPROTO_INET, string(owner))
	return err == nil && len(messages) > 0
}

func askTable(socket *nfnetlink.Socket, family uint8, name string) ([][]byte, error) {
	return socket.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, 0, family, func(a *nfnetlink.Attributes) {
		a.Text(unix.NFTA_TABLE_NAME, name)
	})
}

// readTable reads a table of a family with its chains, rules and sets, but not their elements. It
// returns nil when the table does not exist.
func readTable(socket *nfnetlink.Socket, family uint8, name string) (*kernelTable, error) {
	messages, err := askTable(socket, family, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", name, err)
	}
	table := &kernelTable{family: family, name: name}
	for _, m := range messages {
		table.flags |= parseAttributes(m).number(unix.NFTA_TABLE_FLAGS)
	}
	return table, table.read(socket)
}

func (t *kernelTable) read(socket *nfnetlink.Socket) error {
	chains, err := query(socket, unix.NFT_MSG_GETCHAIN, t.family, func(*nfnetlink.Attributes) {})
	if err != nil {
		return fmt.Errorf("list the chains of table %s: %w", t.name, err)
	}
	for _, m := range chains {
		if chain := decodeChain(m); chain.table == t.name {
			t.chains = append(t.chains, chain)
		}
	}
	rules, err := query(socket, unix.NFT_MSG_GETRULE, t.family, func(a *nfnetlink.Attributes) { a.Text(unix.NFTA_RULE_TABLE, t.name) })
	if err != nil {
		return fmt.Errorf("list the rules of table %s: %w", t.name, err)
	}
	for _, m := range rules {
		rule, err := decodeRule(m)
		if err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
		i := slices.IndexFunc(t.chains, func(c kernelChain) bool { return c.name == rule.chain })
		if rule.table == t.name && i >= 0 {
			t.chains[i].rules = append(t.chains[i].rules, rule)
		}
	}
	sets, err := query(socket, unix.NFT_MSG_GETSET, t.family, func(a *nfnetlink.Attributes) { a.Text(unix.NFTA_SET_TABLE, t.name) })
	if err != nil {
		return fmt.Errorf("list the sets of table %s: %w", t.name, err)
	}
	for _, m := range sets {
		t.sets = append(t.sets, decodeSet(m))
	}
	return nil
}

func (t *kernelTable) set(name string) (*kernelSet, bool) {
	i := slices.IndexFunc(t.sets, func(s kernelSet) bool { return s.name == name })
	if i < 0 {
		return nil, false
	}
	return &t.sets[i], true
}

func decodeChain(message []byte) kernelChain {
	a := parseAttributes(message)
	c := kernelChain{table: a.text(unix.NFTA_CHAIN_TABLE), name: a.text(unix.NFTA_CHAIN_NAME)}
	if c.base = a.has(unix.NFTA_CHAIN_HOOK); c.base {
		hook := parseAttributes(a.take(unix.NFTA_CHAIN_HOOK))
		c.hook, c.priority = hook.number(unix.NFTA_HOOK_HOOKNUM), int32(hook.number(unix.NFTA_HOOK_PRIORITY))
		c.kind, c.policy = a.text(unix.NFTA_CHAIN_TYPE), a.number(unix.NFTA_CHAIN_POLICY)
	}
	return c
}

func decodeRule(message []byte) (kernelRule, error) {
	a := parseAttributes(message)
	r := kernelRule{table: a.text(unix.NFTA_RULE_TABLE), chain: a.text(unix.NFTA_RULE_CHAIN)}
	r.comment = commentOf(a.take(unix.NFTA_RULE_USERDATA), ruleComment)
	elements, err := list(a.take(unix.NFTA_RULE_EXPRESSIONS))
	if err != nil || a.bad {
		return kernelRule{}, fmt.Errorf("a rule of chain %s cannot be read: %w", r.chain, errors.Join(err, errMalformed))
	}
	for _, element := range elements {
		e := parseAttributes(element)
		r.expressions = append(r.expressions, expression{e.text(unix.NFTA_EXPR_NAME), e.take(unix.NFTA_EXPR_DATA)})
	}
	return r, nil
}

// malformed describes a set whose attributes do not have the kernel's form.
const malformed = "malformed"

var errMalformed = errors.New("malformed netlink attributes")

// plainSet has the flags that sets of plans, and sets that belong to one rule, may have.
const plainSet = unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT | unix.NFT_SET_INTERVAL

func decodeSet(message []byte) kernelSet {
	a := parseAttributes(message)
	s := kernelSet{
		name: a.text(unix.NFTA_SET_NAME), flags: a.number(unix.NFTA_SET_FLAGS), keyLength: a.number(unix.NFTA_SET_KEY_LEN),
		comment: commentOf(a.take(unix.NFTA_SET_USERDATA), setComment),
	}
	description := parseAttributes(a.take(unix.NFTA_SET_DESC))
	switch {
	case a.bad:
		s.strange = malformed
	case s.flags&unix.NFT_SET_MAP != 0:
		s.strange = "a map"
	case s.flags&unix.NFT_SET_TIMEOUT != 0:
		s.strange = "with a timeout"
	case s.flags&^plainSet != 0:
		s.strange = fmt.Sprintf("with flags 0x%x", s.flags&^plainSet)
	case description.has(setConcatenation):
		s.strange = "of concatenated keys"
	case a.has(setExpression) || a.has(setExpressions):
		s.strange = "with statements"
	}
	return s
}

// From linux/netfilter/nf_tables.h.
const (
	setConcatenation = 2  // NFTA_SET_DESC_CONCAT
	setExpression    = 17 // NFTA_SET_EXPR
	setExpressions   = 18 // NFTA_SET_EXPRESSIONS
	elementKeyEnd    = 10 // NFTA_SET_ELEM_KEY_END
)

// readElements reads the elements of the sets that wanted selects.
func (t *kernelTable) readElements(socket *nfnetlink.Socket, wanted func(kernelSet) bool) error {
	for i := range t.sets {
		s := &t.sets[i]
		if !wanted(*s) {
			continue
		}
		elements, err := dumpElements(socket, t.family, t.name, s.name)
		if err != nil {
			return fmt.Errorf("read set %s of table %s: %w", s.name, t.name, err)
		}
		s.add(elements)
	}
	return nil
}

func (s *kernelSet) add(elements [][]byte) {
	for _, data := range elements {
		e := decodeKernelElement(data)
		if len(e.key) != int(s.keyLength) || e.last != nil && len(e.last) != len(e.key) {
			e.strange = true
		}
		s.elements = append(s.elements, e)
	}
}

func decodeKernelElement(data []byte) kernelElement {
	a := parseAttributes(data)
	flags := a.number(unix.NFTA_SET_ELEM_FLAGS)
	e := kernelElement{key: a.value(unix.NFTA_SET_ELEM_KEY), last: a.value(elementKeyEnd), end: flags&unix.NFT_SET_ELEM_INTERVAL_END != 0}
	e.comment = commentOf(a.take(unix.NFTA_SET_ELEM_USERDATA), elementComment)
	a.take(unix.NFTA_SET_ELEM_PAD)
	e.strange = !a.whole() || flags&^unix.NFT_SET_ELEM_INTERVAL_END != 0
	return e
}

// spans returns a set's values as ascending ranges; ok is false if an element has more than that.
func (s *kernelSet) spans() (spans []span, ok bool) {
	if s.strange != "" || slices.ContainsFunc(s.elements, func(e kernelElement) bool { return e.strange }) {
		return nil, false
	}
	elements := slices.Clone(s.elements)
	sort.SliceStable(elements, func(i, j int) bool { return elements[i].before(elements[j]) })
	open := false
	for _, e := range elements {
		switch before := len(spans) - 1; {
		case !open:
		case bytes.Equal(spans[before].first, e.key):
			spans = spans[:before]
		default: // up to the value below this one
			spans[before].last = predecessor(e.key)
		}
		if open = s.flags&unix.NFT_SET_INTERVAL != 0 && !e.end && e.last == nil; !e.end {
			spans = append(spans, e.span(open))
		}
	}
	return slices.DeleteFunc(spans, func(s span) bool { return bytes.Compare(s.first, s.last) > 0 }), true
}

// before orders elements by their keys. Where one interval ends at the value at which another
// begins, the kernel finds the beginning.
func (e kernelElement) before(other kernelElement) bool {
	order := bytes.Compare(e.key, other.key)
	return order < 0 || order == 0 && e.end && !other.end
}

// span returns the values of an element that begins a range. An open range goes to the end.
func (e kernelElement) span(open bool) span {
	switch {
	case e.last != nil:
		return span{e.key, e.last}
	case open:
		return span{e.key, bytes.Repeat([]byte{0xff}, len(e.key))}
	default:
		return span{e.key, e.key}
	}
}

// predecessor returns the number before a number that is not 0.
func predecessor(number []byte) []byte {
	before := slices.Clone(number)
	for i := len(before) - 1; i >= 0; i-- {
		before[i]--
		if before[i] != 0xff {
			break
		}
	}
	return before
}
