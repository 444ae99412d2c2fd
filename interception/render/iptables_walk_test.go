// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// TestIPTablesMeansThePlan compares random plans with their texts, packet by packet.
func TestIPTablesMeansThePlan(t *testing.T) {
	t.Parallel()
	met := 0
	for seed := range uint64(60) {
		choose := sample.Seeded(seed)
		plan := sample.Rules(choose, "mesh-test")
		for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			text, err := render.IPTablesRestore(plan, family)
			if err != nil {
				t.Fatal(err)
			}
			x := readIPTables(t, plan, string(text))
			for range 100 {
				sent := randomPacket(choose, family)
				for table := range plan.Tables() {
					for _, hook := range table.Kind.Hooks() {
						want, got := walkPlan(plan, table, hook, sent), x.walk(t, table.Kind, hook, sent)
						if diff := cmp.Diff(want, got); diff != "" {
							t.Fatalf("seed %d, %s %s: %+v meets other rules (-plan +text):\n%s\n%s\n%s", seed, table.Kind, hook, sent, diff, plan, text)
						}
						met += len(want)
					}
				}
			}
		}
	}
	if met < 10000 {
		t.Errorf("the packets met %d rules only", met)
	}
}

// packet has the fields that rules test.
type packet struct {
	src, dst       netip.Addr
	in, out        interception.Interface
	protocol       interception.Protocol
	sport, dport   interception.Port
	flags          interception.TCPFlag
	socket         bool
	uid, gid       uint32
	mark, connmark interception.Mark
	state          interception.ConnState
	direction      interception.Direction
}

func randomPacket(c sample.Choices, family interception.Family) packet {
	number := func() int { return sample.Pick(c, 0, 80, sample.Application, sample.Proxy, 8080, 60000) + c(12) }
	link := func() interception.Interface {
		return sample.Pick[interception.Interface](c, "lo", "eth0", "eth1", "eth01", "net1.4000", "fourteen-letts")
	}
	p := packet{
		src: sample.Address(c, family), dst: sample.Address(c, family), in: link(), out: link(),
		protocol: sample.Pick(c, interception.ProtocolTCP, interception.ProtocolUDP, 1),
		sport:    interception.Port(number()), dport: interception.Port(number()),
		flags:  interception.TCPFlag(sample.Pick(c, 2, 16, c(64))),
		socket: c(4) > 0, uid: uint32(number()), gid: uint32(number()),
		mark: interception.Mark(c(2)), connmark: interception.Mark(c(2)), state: 1 << c(5),
	}
	if p.state != interception.StateInvalid && p.state != interception.StateUntracked {
		p.direction = interception.Direction(1 + c(2))
	}
	return p
}

// done is what follows a rule's action on a packet.
type done string

const (
	goesOn  done = ""
	returns done = "return"
	ends    done = "end"
)

// act does what matters to later rules.
func (p *packet) act(a interception.Action) done {
	switch a := a.(type) {
	case interception.Return:
		return returns
	case interception.SetMark:
		p.mark = a.Mark.Write(p.mark)
	case interception.SetConnMark:
		p.connmark = a.Mark.Write(p.connmark)
	case interception.SaveMark:
		p.connmark = copied(a.Mask, p.mark, p.connmark)
	case interception.RestoreMark:
		p.mark = copied(a.Mask, p.connmark, p.mark)
	case interception.Log, interception.SetZone, interception.NoTrack:
	default:
		return ends
	}
	return goesOn
}

func copied(mask, from, to interception.Mark) interception.Mark {
	if mask == 0 {
		return from
	}
	return to&^mask | from&mask
}

// walkPlan returns the rules that apply to a packet, by the documentation of the plan's types.
func walkPlan(plan *interception.Plan, table interception.Table, hook interception.Hook, p packet) []interception.RuleID {
	var path []interception.RuleID
	var walk func(name interception.ChainName) done
	step := func(id interception.RuleID, m interception.Match, a interception.Action) done {
		if !p.meets(plan, m) {
			return goesOn
		}
		path = append(path, id)
		if jump, ok := a.(interception.Jump); ok {
			return walk(jump.Chain)
		}
		return p.act(a)
	}
	walk = func(name interception.ChainName) done {
		chain, _ := table.Chain(name)
		for _, r := range chain.Rules {
			switch step(r.ID, r.Match, r.Action) {
			case returns:
				return goesOn
			case ends:
				return ends
			case goesOn:
			}
		}
		return goesOn
	}
	for _, e := range table.Entries {
		if e.Hook == hook && step(e.ID, e.Match, interception.Jump{Chain: e.Chain}) == ends {
			break
		}
	}
	return path
}

func (p packet) meets(plan *interception.Plan, m interception.Match) bool {
	if f := m.EffectiveFamily(); f != interception.BothFamilies && f != interception.FamilyOf(p.src) {
		return false
	}
	members := func(c interception.Condition[interception.SetRef]) interception.PrefixSet {
		set, _ := plan.Set(c.Set().Name)
		return set.Members
	}
	transport := p.protocol == interception.ProtocolTCP || p.protocol == interception.ProtocolUDP
	l := m.L4
	return (l.Protocol() == interception.AnyProtocol || l.Protocol() == p.protocol) &&
		meets(m.Src, true, m.Src.Set().Contains(p.src)) && meets(m.Dst, true, m.Dst.Set().Contains(p.dst)) &&
		meets(m.SrcSet, true, members(m.SrcSet).Contains(p.src)) && meets(m.DstSet, true, members(m.DstSet).Contains(p.dst)) &&
		meets(m.In, true, m.In.Set().Contains(p.in)) && meets(m.Out, true, m.Out.Set().Contains(p.out)) &&
		meets(l.SrcPort(), transport, l.SrcPort().Set().Contains(p.sport)) &&
		meets(l.DstPort(), transport, l.DstPort().Set().Contains(p.dport)) &&
		meets(l.TCPFlags(), transport, l.TCPFlags().Set().Matches(p.flags)) &&
		meets(m.UID, p.socket, m.UID.Set().Contains(interception.UID(p.uid))) &&
		meets(m.GID, p.socket, m.GID.Set().Contains(interception.GID(p.gid))) &&
		meets(m.Mark, true, m.Mark.Set().Matches(p.mark)) && meets(m.ConnMark, true, m.ConnMark.Set().Matches(p.connmark)) &&
		meets(m.State, true, m.State.Set()&p.state != 0) && p.goes(m.Direction)
}

// goes reports whether the packet goes in a direction.
func (p packet) goes(d interception.Direction) bool {
	return d == interception.AnyDirection || d == p.direction
}

func meets[S interception.Operand](c interception.Condition[S], known, member bool) bool {
	return !c.Present() || known && member != c.Negated()
}

// iptables holds the rules of a text by table and chain.
type iptables struct {
	rules   map[string][][]string
	actions map[interception.RuleID]interception.Action
}

func readIPTables(t *testing.T, plan *interception.Plan, text string) iptables {
	t.Helper()
	x := iptables{map[string][][]string{}, map[interception.RuleID]interception.Action{}}
	for table := range plan.Tables() {
		for _, e := range table.Entries {
			x.actions[e.ID] = interception.Jump{}
		}
	}
	for _, r := range plan.Rules() {
		x.actions[r.ID] = r.Action
	}
	table := ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if name, ok := strings.CutPrefix(words[0], "*"); ok {
			table = name
		} else if words[0] == "-A" {
			x.rules[table+" "+words[1]] = append(x.rules[table+" "+words[1]], words[2:])
		}
	}
	return x
}

// walk returns the plan's rules whose action the text applies to a packet.
func (x iptables) walk(t *testing.T, table interception.TableKind, hook interception.Hook, p packet) []interception.RuleID {
	t.Helper()
	var path []interception.RuleID
	var walk func(name string) done
	walk = func(name string) done {
		for _, words := range x.rules[table.String()+" "+name] {
			verdict, met := x.match(t, words, p)
			if !met {
				continue
			}
			id := interception.RuleID(strings.Trim(words[slices.Index(words, "--comment")+1], `"`))
			var next done
			action := x.actions[id]
			_, chain := x.rules[table.String()+" "+verdict[1]]
			sorter := strings.Trim(strings.TrimPrefix(verdict[1], "MESH-TEST_"), "0123456789") == ""
			_, plainReturn := action.(interception.Return)
			switch {
			case verdict[0] == "-g":
				return walk(verdict[1])
			case sorter:
				next = walk(verdict[1])
			case chain || strings.HasPrefix(verdict[1], "MESH-TEST_"):
				path = append(path, id)
				next = walk(verdict[1])
			case verdict[1] == "RETURN":
				if plainReturn {
					path = append(path, id)
				}
				return goesOn
			default:
				path = append(path, id)
				next = p.act(action)
			}
			if next == ends {
				return ends
			}
		}
		return goesOn
	}
	walk(strings.ToUpper(hook.String()))
	return path
}

// match evaluates a line's words up to the verdict and returns the rest.
func (x iptables) match(t *testing.T, words []string, p packet) ([]string, bool) {
	t.Helper()
	met, negated, match := true, false, ""
	for i := 0; i < len(words); i++ {
		option := words[i]
		switch option {
		case "!":
			negated = true
			continue
		case "-m":
			i++
			match = words[i]
			continue
		case "--comment": // the last match
			return words[slices.IndexFunc(words, func(w string) bool { return w == "-j" || w == "-g" }):], met
		}
		arguments := map[string]int{"--socket-exists": 0, "--tcp-flags": 2}
		count, is := arguments[option]
		if !is {
			count = 1
		}
		met = met && p.meetsWords(t, match, option, words[i+1:i+1+count]) != negated
		i, negated = i+count, false
	}
	t.Fatalf("no comment in %q", words)
	return nil, false
}

// meetsWords evaluates one option of a match, as the kernel does.
func (p packet) meetsWords(t *testing.T, match, option string, values []string) bool {
	t.Helper()
	switch option {
	case "-s":
		return netip.MustParsePrefix(values[0]).Contains(p.src)
	case "-d":
		return netip.MustParsePrefix(values[0]).Contains(p.dst)
	case "-i":
		return onInterface(p.in, values[0])
	case "-o":
		return onInterface(p.out, values[0])
	case "-p":
		return p.protocol.String() == values[0]
	case "--sport", "--sports":
		return inRanges(uint32(p.sport), values[0], ":")
	case "--dport", "--dports":
		return inRanges(uint32(p.dport), values[0], ":")
	case "--tcp-flags":
		return p.flags&flagBits(values[0]) == flagBits(values[1])
	case "--socket-exists":
		return p.socket
	case "--uid-owner":
		// Without a socket this is false, so that the packet meets the negated option.
		return p.socket && inRanges(p.uid, values[0], "-")
	case "--gid-owner":
		return p.socket && inRanges(p.gid, values[0], "-")
	case "--mark":
		if match == "connmark" {
			return hasMark(p.connmark, values[0])
		}
		return hasMark(p.mark, values[0])
	case "--ctstate":
		return slices.Contains(strings.Split(values[0], ","), strings.ToUpper(p.state.String()))
	case "--ctdir":
		return strings.ToUpper(p.direction.String()) == values[0]
	default:
		t.Fatalf("unknown option %q", option)
		return false
	}
}

// hasMark evaluates value/mask.
func hasMark(mark interception.Mark, text string) bool {
	value, mask, masked := strings.Cut(text, "/")
	if !masked {
		mask = "0xffffffff"
	}
	return mark&interception.Mark(parse(mask)) == interception.Mark(parse(value))
}

func onInterface(name interception.Interface, pattern string) bool {
	stem, is := strings.CutSuffix(pattern, "+")
	return string(name) == pattern || is && strings.HasPrefix(string(name), stem)
}

func inRanges(n uint32, list, to string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(r string) bool {
		first, last, is := strings.Cut(r, to)
		if !is {
			last = first
		}
		return parse(first) <= n && n <= parse(last)
	})
}

func flagBits(list string) interception.TCPFlag {
	var bits interception.TCPFlag
	for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"} {
		if slices.Contains(strings.Split(list, ","), name) {
			bits |= 1 << i
		}
	}
	return bits
}

// parse reads a number that the renderer wrote.
func parse(number string) uint32 {
	n, err := strconv.ParseUint(number, 0, 32)
	if err != nil {
		panic(errors.Join(fmt.Errorf("number %q", number), err))
	}
	return uint32(n)
}
