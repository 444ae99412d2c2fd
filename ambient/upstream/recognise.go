// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// Recognised are rules of Istio's own node agent that stand in a pod, or on the host, written by
// one program.
type Recognised struct {
	// Program wrote the rules.
	Program Program
	// Rules is the rule set that they are, or the one that they differ least from. Of those on
	// the host it has only IPv6.
	Rules PodRules
	// Differences are what distinguishes them from that rule set, a line each. Nothing but rules
	// without differences should be removed: what else changed them may count on them.
	Differences []string
	// Chains are the agent's chains, and those of the hooks that lead to them.
	Chains []interception.ForeignChain
}

// Program is what Istio's node agent writes rules by. Each has tables of its own.
type Program string

// The programs.
const (
	ProgramNFT            Program = "nft"
	ProgramIPTablesNFT    Program = "iptables-nft"
	ProgramIPTablesLegacy Program = "iptables-legacy"
)

// Recognise looks for the rules of Istio's own node agent among the chains of other programs that a
// dataplane has observed in a pod ([interception.State].Foreign), and compares them with those that
// the agent writes with these numbers. The chains are found by their names and judged by their
// rules. Package iptables decodes what the generations but [GenerationNative] have written, and
// package nftables what that one has; what either cannot decode is a difference. It returns one
// element for each program, as the agent's choice may change when it starts anew and the former
// rules then stay, and nil if there is no such chain.
func Recognise(chains []interception.ForeignChain, n ambient.Numbers) ([]Recognised, error) {
	return byProgram(chains, func(lines hookLines, program Program, _ []interception.ForeignChain) (Recognised, error) {
		return lines.closest(n, program)
	})
}

// byProgram has the rules of each program judged that has chains of the agent.
func byProgram(
	chains []interception.ForeignChain, judge func(hookLines, Program, []interception.ForeignChain) (Recognised, error),
) (all []Recognised, err error) {
	for _, program := range []Program{ProgramNFT, ProgramIPTablesNFT, ProgramIPTablesLegacy} {
		written := slices.DeleteFunc(slices.Clone(chains), func(c interception.ForeignChain) bool { return programOf(c.Table) != program })
		found, lines := agentLines(written, isAgents)
		if len(found) == 0 {
			continue
		}
		r, err := judge(lines, program, found)
		if err != nil {
			return nil, err
		}
		r.Chains = found
		all = append(all, r)
	}
	return all, nil
}

// closest returns the rule set that the rules differ least from.
func (h hookLines) closest(n ambient.Numbers, program Program) (Recognised, error) {
	best := Recognised{Program: program}
	for i, candidate := range h.candidates(n, program == ProgramNFT) {
		plan, err := candidate.Plan(n, "istio-ambient")
		if err != nil {
			return best, fmt.Errorf("recognise rules of Istio's agent: %w", err)
		}
		differences := h.differences(planLines(plan, candidate))
		if i == 0 || len(differences) < len(best.Differences) {
			best.Rules, best.Differences = candidate, differences
		}
	}
	return best, nil
}

// programOf returns the program whose table has this name.
func programOf(table string) Program {
	switch {
	case strings.HasPrefix(table, "legacy "):
		return ProgramIPTablesLegacy
	case strings.HasPrefix(table, nativeTables):
		return ProgramNFT
	default:
		return ProgramIPTablesNFT
	}
}

// hookLines are the rules of a hook in words, by the hook: "v4 nat output".
type hookLines map[string][]string

func (h hookLines) add(family interception.Family, kind, hook string, m interception.Match, a interception.Action) {
	if effective := m.EffectiveFamily(); effective != interception.BothFamilies && effective != family {
		return
	}
	m.Family = family
	key := fmt.Sprintf("%s %s %s", family, kind, hook)
	if member, is := a.(interception.Opaque); is && member.Then != nil {
		h[key] = append(h[key], fmt.Sprintf("%s dst @%s -> %s", m, member.To, member.Then))
		return
	}
	h[key] = append(h[key], fmt.Sprintf("%s -> %s", m, a))
}

// planLines returns the rules of a plan of [PodRules].
func planLines(p *interception.Plan, u PodRules) hookLines {
	lines := hookLines{}
	of := podPlanner{PodRules: u}.families()
	if u.Generation == GenerationNative {
		of = families(true)
	}
	for table := range p.Tables() {
		for _, entry := range table.Entries {
			i := slices.IndexFunc(table.Chains, func(c interception.Chain) bool { return c.Name == entry.Chain })
			for _, rule := range table.Chains[i].Rules {
				for _, family := range of {
					lines.add(family, table.Kind.String(), entry.Hook.String(), rule.Match, rule.Action)
				}
			}
		}
	}
	return lines
}

// nativeTables begins the names of the tables of [GenerationNative].
const nativeTables = "inet istio-ambient-"

// agentTable returns the kind of a table in which the agent writes, and its families.
func agentTable(name string) (kind string, of []interception.Family, ok bool) {
	if kind, ok = strings.CutPrefix(name, nativeTables); ok {
		return kind, families(true), true
	}
	family, kind, ok := strings.Cut(strings.TrimPrefix(name, "legacy "), " ")
	switch {
	case ok && family == "ip":
		return kind, []interception.Family{interception.IPv4}, true
	case ok && family == "ip6":
		return kind, []interception.Family{interception.IPv6}, true
	default:
		return "", nil, false
	}
}

// isAgents reports whether a chain has one of the agent's names. In the tables of iptables, those
// of package iptables for the owner "istio-ambient" begin with ISTIO-AMBIENT_.
func isAgents(c interception.ForeignChain) bool {
	if programOf(c.Table) == ProgramNFT {
		return strings.HasPrefix(strings.ToLower(c.Name), "istio")
	}
	return strings.HasPrefix(c.Name, "ISTIO_")
}

// agentLines returns the agent's chains, which have its names, with the hooks' chains that lead to
// them, and the rules that packets of each hook meet there. What leads there under a condition
// counts as a rule, and so does a chain that no hook leads to.
func agentLines(
	chains []interception.ForeignChain, named func(interception.ForeignChain) bool,
) (found []interception.ForeignChain, lines hookLines) {
	lines = hookLines{}
	for _, c := range chains {
		kind, of, ok := agentTable(c.Table)
		switch {
		case !ok:
		case c.Hook != "":
			native := programOf(c.Table) == ProgramNFT
			if leads := lines.follow(kind, of, c, chains, named); !leads && (!native || c.Hook != postrouting) {
				continue
			}
			found = append(found, c)
			if native {
				lines.native(kind, of, c)
			}
		case named(c):
			found = append(found, c)
			if !slices.ContainsFunc(chains, func(hook interception.ForeignChain) bool { return hook.Hook != "" && leadsTo(hook, c) }) {
				lines[c.Table] = append(lines[c.Table], "chain "+c.Name+" that no hook leads to")
			}
		}
	}
	return found, lines
}

func leadsTo(hook, c interception.ForeignChain) bool {
	return hook.Table == c.Table && slices.ContainsFunc(hook.Rules, func(r interception.Rule) bool {
		to, is := r.Action.(interception.Jump)
		return is && string(to.Chain) == c.Name
	})
}

// native adds what nft's form of a hook's chain does not have: more than the jump, or another place
// in the hook. The chains of iptables belong to all programs.
func (h hookLines) native(kind string, of []interception.Family, hook interception.ForeignChain) {
	priority := map[string]int32{"raw": -300, "mangle": -150, "nat": -100}[kind]
	if hook.Hook == postrouting {
		priority = 100
	}
	form := map[string]string{"nat": "nat", "mangle output": "route"}
	chainType := cmp.Or(form[kind], form[kind+" "+hook.Hook], "filter")
	for _, family := range of {
		if hook.Type != chainType || hook.Priority != priority || hook.Policy != (interception.Accept{}) {
			key := fmt.Sprintf("%s %s %s", family, kind, hook.Hook)
			h[key] = append(h[key], fmt.Sprintf("a chain of type %s, priority %d and policy %s", hook.Type, hook.Priority, hook.Policy))
		}
		for _, r := range hook.Rules {
			if _, jump := r.Action.(interception.Jump); !jump {
				h.add(family, kind, hook.Hook, r.Match, r.Action)
			}
		}
	}
}

// follow adds the rules of the agent's chains to which a hook's chain leads, and reports whether it
// leads to any.
func (h hookLines) follow(
	kind string, of []interception.Family, hook interception.ForeignChain, chains []interception.ForeignChain,
	named func(interception.ForeignChain) bool,
) (leads bool) {
	for _, jump := range hook.Rules {
		to, is := jump.Action.(interception.Jump)
		i := slices.IndexFunc(chains, func(c interception.ForeignChain) bool { return c.Table == hook.Table && c.Name == string(to.Chain) })
		if !is || i < 0 || !named(chains[i]) {
			continue
		}
		leads = true
		for _, family := range of {
			if jump.Match.Family = interception.BothFamilies; !jump.Match.IsZero() {
				h.add(family, kind, hook.Hook, jump.Match, jump.Action)
			}
			for _, rule := range chains[i].Rules {
				h.add(family, kind, hook.Hook, rule.Match, rule.Action)
			}
		}
	}
	return leads
}

// candidates returns the rule sets that these rules may be, with the features that they show.
func (h hookLines) candidates(n ambient.Numbers, native bool) []PodRules {
	has := func(action interception.Action) bool {
		for _, lines := range h {
			for _, line := range lines {
				if strings.HasSuffix(line, " -> "+action.String()) {
					return true
				}
			}
		}
		return false
	}
	u := PodRules{DNS: has(interception.RedirectTo{Port: n.DNSPort}), Reroute: h.rerouted(n), IPv6: h.hasIPv6(n)}
	inbound := has(interception.RedirectTo{Port: n.InboundPort})
	tproxy := has(interception.TProxyTo{Port: n.InboundPort, Mark: n.ReplyMark})
	by := u
	by.Generation, by.BypassInbound = GenerationRedirect, !inbound && !tproxy
	by.Unmarked = by.BypassInbound && !has(interception.SetConnMark{Mark: n.ReplyMark})
	if native {
		by.Generation = GenerationNative
		return []PodRules{by}
	}
	u.Reroute, u.Generation = nil, GenerationTProxy
	zones := u
	zones.Generation = GenerationTProxyZones
	return []PodRules{by, u, zones}
}

// rerouted returns the interfaces whose connections go to the outbound port as they come in.
func (h hookLines) rerouted(n ambient.Numbers) (names []interception.Interface) {
	capture := " -> " + interception.RedirectTo{Port: n.OutboundPort}.String()
	for _, line := range h["v4 nat prerouting"] {
		_, rest, in := strings.Cut(line, " in ")
		name, _, _ := strings.Cut(rest, " ")
		if in && strings.HasSuffix(line, capture) {
			names = append(names, interception.Interface(name))
		}
	}
	return names
}

// hasIPv6 reports whether connections over IPv6 are captured.
func (h hookLines) hasIPv6(n ambient.Numbers) bool {
	capture := " -> " + interception.RedirectTo{Port: n.OutboundPort}.String()
	return slices.ContainsFunc(h["v6 nat output"], func(line string) bool { return strings.HasSuffix(line, capture) })
}

// differences returns what is missing, what is more, and what has another order.
func (h hookLines) differences(want hookLines) (all []string) {
	hooks := map[string]bool{}
	for _, lines := range []hookLines{h, want} {
		for hook := range lines {
			hooks[hook] = true
		}
	}
	for hook := range hooks {
		before := len(all)
		for _, line := range want[hook] {
			if !slices.Contains(h[hook], line) {
				all = append(all, fmt.Sprintf("%s: missing %s", hook, line))
			}
		}
		for _, line := range h[hook] {
			if !slices.Contains(want[hook], line) {
				all = append(all, fmt.Sprintf("%s: another rule, %s", hook, line))
			}
		}
		if len(all) == before && !slices.Equal(h[hook], want[hook]) {
			all = append(all, hook+": the rules have another order, or stand there twice")
		}
	}
	slices.Sort(all)
	return all
}
