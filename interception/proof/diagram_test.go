// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// universe is the number of variables of the functions in these tests, small enough to try all
// their values.
const universe = 6

// truth is a function by its values: bit i is the value for the variables of the number i.
type truth uint64

// holds evaluates a function.
func (d *diagram) holds(f ref, set func(level int32) bool) bool {
	for f > always {
		f = d.branch(f, d.nodes[f].level, set(d.nodes[f].level))
	}
	return f == always
}

// randomFunction returns the same function twice: as a diagram, and by its values.
func randomFunction(c sample.Choices, d *diagram, depth int) (ref, truth) {
	if depth == 0 {
		level := int32(c(universe))
		var values truth
		for i := range 1 << universe {
			values |= truth(i>>level&1) << i
		}
		return d.variable(level), values
	}
	f, fs := randomFunction(c, d, depth-1)
	g, gs := randomFunction(c, d, depth-1)
	h, hs := randomFunction(c, d, depth-1)
	switch c(6) {
	case 0:
		return d.and(f, g), fs & gs
	case 1:
		return d.or(f, g), fs | gs
	case 2:
		return d.not(f), ^fs
	case 3:
		return d.without(f, g), fs &^ gs
	case 4:
		return d.iff(f, g), ^(fs ^ gs)
	default:
		return d.ite(f, g, h), fs&gs | ^fs&hs
	}
}

// A diagram has the values of the function, and functions with the same values are the same node.
func TestDiagramHasTheFunctionsValues(t *testing.T) {
	t.Parallel()
	d, seen := newDiagram(1_000_000), map[truth]ref{}
	for seed := range uint64(2000) {
		f, values := randomFunction(sample.Seeded(seed), d, 3)
		if known, ok := seen[values]; ok && known != f {
			t.Fatalf("seed %d: the same function is node %d and %d", seed, known, f)
		}
		seen[values] = f
		for i := range 1 << universe {
			if got := d.holds(f, func(level int32) bool { return i>>level&1 == 1 }); got != (values>>i&1 == 1) {
				t.Fatalf("seed %d: for %06b it is %t", seed, i, got)
			}
		}
		if f != never {
			witness := d.witness(f)
			if !d.holds(f, func(level int32) bool { return witness[level] }) {
				t.Fatalf("seed %d: the witness %v is none", seed, witness)
			}
		}
	}
	if len(seen) < 500 {
		t.Errorf("only %d functions: they test too little", len(seen))
	}
	for i, n := range d.nodes[2:] {
		if n.low == n.high || d.nodes[n.low].level <= n.level || d.nodes[n.high].level <= n.level {
			t.Fatalf("node %d is not reduced or not ordered: %+v", i+2, n)
		}
	}
}

func TestDiagramIsBounded(t *testing.T) {
	t.Parallel()
	d := newDiagram(100)
	f := never
	for i := range int32(40) { // pairs that are far from each other
		f = d.or(f, d.and(d.variable(i), d.variable(100+i)))
	}
	if !errors.Is(d.err, ErrTooLarge) || len(d.nodes) > 100 {
		t.Errorf("%d nodes, error %v", len(d.nodes), d.err)
	}
}

// A diagram that is built directly equals the union of its parts.
func TestRangesAndPrefixes(t *testing.T) {
	t.Parallel()
	n := number{first: 10, bits: 16, step: 2}
	for seed := range uint64(200) {
		c, d := sample.Seeded(seed), newDiagram(1_000_000)
		set, union := interception.PortSet{}, never
		for range 1 + c(6) {
			first := interception.Port(c(1 << 16))
			last := first + interception.Port(c(int(^first)+1)>>c(16))
			set = set.Union(interception.PortRange(first, last))
			// The blocks of a range.
			for bit, from := 0, uint32(first); from <= uint32(last); from += 1 << bit {
				for bit = 0; from&(1<<bit) == 0 && bit < 16 && from+2<<bit-1 <= uint32(last); bit++ {
				}
				union = d.or(union, d.fixed(n, from, ^uint32(0)<<bit))
			}
		}
		if got := inRanges(d, n, set.Ranges()); got != union {
			t.Fatalf("seed %d: ranges %s differ from the union of their parts", seed, set)
		}
	}
	addr := number{first: 3, bits: 128, step: 1}
	for seed := range uint64(200) {
		c, d := sample.Seeded(seed), newDiagram(1_000_000)
		family := sample.Pick(c, interception.IPv4, interception.IPv6)
		set, union := interception.PrefixSet{}, never
		for range 1 + c(6) {
			part := sample.Prefixes(c, family)
			set = set.Union(part)
			for _, p := range part.Prefixes() {
				f := always
				for bit := p.Bits() - 1; bit >= 0; bit-- {
					f = d.and(f, d.iff(d.variable(addr.level(bit)), constant(bitOf(p.Addr(), bit))))
				}
				union = d.or(union, f)
			}
		}
		if got := d.prefixesBelow(addr, 0, set.Prefixes()); got != union {
			t.Fatalf("seed %d: prefixes %s differ from the union of their parts", seed, set)
		}
	}
}

// Marks are compared bit by bit, wherever their bits come from.
func TestMarks(t *testing.T) {
	t.Parallel()
	q := newQuestion(1_000_000)
	for seed := range uint64(500) {
		c := sample.Seeded(seed)
		some := func() interception.Mark { return interception.Mark(c(1 << 31)) }
		m, other := mark{own: ^interception.Mark(0)}, mark{flow: ^interception.Mark(0)}
		packet, connection := some(), some()
		is, was := packet, connection // the values of both
		for range c(4) {
			mask, value := some(), some()
			switch c(3) {
			case 0:
				m, is = m.write(givenMark(value&mask), mask), is&^mask|value&mask
			case 1:
				m, is = m.write(other, mask), is&^mask|was&mask
			case 2:
				other, was = other.write(m, mask), was&^mask|is&mask
			}
		}
		holds := func(f ref) bool {
			return q.holds(f, func(level int32) bool {
				for i, n := range q.marks {
					for bit := range 32 {
						if n.level(bit) == level {
							return [...]interception.Mark{packet, connection}[i]>>(31-bit)&1 == 1
						}
					}
				}
				return false
			})
		}
		mask := some() & (some()&^0xffff | interception.Mark(1<<c(16)))
		for _, bits := range []interception.MarkBits{{Value: is & mask, Mask: mask}, {Value: some() & mask, Mask: mask}} {
			if got := holds(q.marked(m, bits)); got != bits.Matches(is) {
				t.Fatalf("seed %d: that %#x matches %s is %t", seed, is, bits, got)
			}
		}
		if got := holds(q.sameMark(m, other)); got != (is == was) {
			t.Fatalf("seed %d: that %#x and %#x are the same is %t", seed, is, was, got)
		}
	}
}

// The size for a thousand prefixes of one address and five hundred ports is their sum, not the
// product.
func TestLargeSetsStaySmall(t *testing.T) {
	t.Parallel()
	q := newQuestion(defaultMaxNodes)
	prefixes := make([]netip.Prefix, 1000)
	for i := range prefixes {
		var addr [4]byte
		binary.BigEndian.PutUint32(addr[:], 10<<24|uint32(i)*2654435761>>8)
		prefixes[i] = netip.PrefixFrom(netip.AddrFrom4(addr), 32)
	}
	ports := interception.PortSet{}
	for i := range 500 {
		ports = ports.Union(interception.Ports(interception.Port(i * 131)))
	}
	both := q.and(q.portIn(own(ownDst).port, ports), q.not(q.within(own(ownDst).address, interception.Prefixes(prefixes...))))
	if both == never || len(q.nodes) > 100_000 {
		t.Errorf("%d nodes", len(q.nodes))
	}
}
