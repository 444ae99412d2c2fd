// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// RecognisedNode are rules of the agent of Istio 1.18 to 1.20 that stand on a node, written by one
// program.
type RecognisedNode struct {
	// Program wrote the rules.
	Program Program
	// Rules is the rule set that they are, or the one that they differ least from.
	Rules NodeRules
	// Differences are what distinguishes them from that rule set, a line each. Nothing but rules
	// without differences should be removed: what else changed them may count on them.
	Differences []string
	// Chains are the agent's chains, and those of the hooks that lead to them.
	Chains []interception.ForeignChain
}

// RecogniseNode looks for the rules of the agent of Istio 1.18 to 1.20 among the chains of other
// programs that package iptables has observed in the node's namespace
// ([interception.State].Foreign). It reads the agent's addresses and links from the rules. The
// chains are found by their names and judged by their rules. It returns one element for each
// program, and nil if there is no such chain.
func RecogniseNode(chains []interception.ForeignChain) []RecognisedNode {
	var all []RecognisedNode
	for _, program := range []Program{ProgramIPTablesNFT, ProgramIPTablesLegacy} {
		written := slices.DeleteFunc(slices.Clone(chains), func(c interception.ForeignChain) bool { return programOf(c.Table) != program })
		found, lines := agentLines(written, func(c interception.ForeignChain) bool { return strings.HasPrefix(c.Name, "ztunnel-") })
		if len(found) > 0 {
			best := lines.closestNode(nodeSettings(found))
			best.Program, best.Chains = program, found
			all = append(all, best)
		}
	}
	return all
}

// closestNode returns the rule set with these settings that the rules differ least from.
func (h hookLines) closestNode(settings NodeRules) (best RecognisedNode) {
	h.sortWords()
	for i, release := range []NodeRelease{NodeRelease118, NodeRelease119, NodeRelease120} {
		candidate := settings
		candidate.Release = release
		var differences []string
		if plan, err := candidate.Plan("istio-ambient"); err != nil {
			differences = []string{err.Error()}
		} else {
			differences = h.differences(nodeLines(plan))
		}
		if i == 0 || len(differences) < len(best.Differences) {
			best.Rules, best.Differences = candidate, differences
		}
	}
	return best
}

// opaqueLine begins the line of a rule that refers to a set. Its options have the order in which
// the agent gave them.
const opaqueLine = "v4 -> opaque: "

// sortWords gives the options of rules that refer to a set an order of their own.
func (h hookLines) sortWords() {
	for _, lines := range h {
		for i, line := range lines {
			if text, is := strings.CutPrefix(line, opaqueLine); is {
				lines[i] = opaqueLine + sortedWords(strings.Fields(text)...)
			}
		}
	}
}

func sortedWords(words ...string) string {
	return strings.Join(slices.Sorted(slices.Values(words)), " ")
}

// nodeLines returns the rules of a plan of [NodeRules].
func nodeLines(p *interception.Plan) hookLines {
	lines := hookLines{}
	for table := range p.Tables() {
		for _, entry := range table.Entries {
			chain, _ := table.Chain(entry.Chain) // a valid plan has it
			for _, rule := range chain.Rules {
				switch {
				case rule.Match.DstSet.Present(): // as package iptables decodes another program's set
					rule.Action = interception.Opaque{To: string(NodePods), Then: rule.Action}
					rule.Match.DstSet = interception.Condition[interception.SetRef]{}
				case rule.Match.SrcSet.Present():
					rule.Action, rule.Match = interception.Opaque{Text: setWords(rule)}, v4()
				}
				lines.add(interception.IPv4, table.Kind.String(), entry.Hook.String(), rule.Match, rule.Action)
			}
		}
	}
	return lines
}

// setWords returns the options of a rule about packets from a set, as iptables-save prints them,
// sorted.
func setWords(r interception.Rule) string {
	var words []string
	add := func(text string) { words = append(words, strings.Fields(text)...) }
	add("-p " + r.Match.L4.Protocol().String())
	if ports := r.Match.L4.DstPort(); ports.Present() {
		add("-m " + r.Match.L4.Protocol().String() + " --dport " + ports.Set().String())
	}
	add("-m set --match-set " + string(NodePods) + " src")
	switch a := r.Action.(type) {
	case interception.SetMark:
		add(fmt.Sprintf("-j MARK --set-xmark %#x/%#x", uint32(a.Mark.Value), uint32(a.Mark.Mask)))
	case interception.DNATTo:
		add("-j DNAT --to-destination " + netip.AddrPortFrom(a.Addr, uint16(a.Port)).String())
	}
	return sortedWords(words...)
}

// nodeSettings reads from the agent's rules what they depend on besides its release.
func nodeSettings(chains []interception.ForeignChain) NodeRules {
	var u NodeRules
	for _, c := range chains {
		for _, r := range c.Rules {
			u.learn(c.Name, r)
		}
	}
	return u
}

func (u *NodeRules) learn(chain string, r interception.Rule) {
	output := chain == "ztunnel-OUTPUT"
	switch a := r.Action.(type) {
	case interception.SetMark:
		source := single(r.Match.Src.Set().String())
		if output {
			u.Node = source
		} else if names := r.Match.In.Set().Names(); a.Mark == equal(upstreamSpoofed) && len(names) == 1 {
			u.Proxy, u.ProxyLink = source, names[0]
		}
	case interception.Opaque:
		if output {
			u.Node = single(r.Match.Src.Set().String())
		}
		u.DNS = u.DNS || strings.Contains(a.Text, "-j DNAT")
	case interception.Return:
		if ports := r.Match.L4.DstPort(); r.Match.L4.Protocol() == interception.ProtocolUDP && ports.Present() {
			_, _ = fmt.Sscan(ports.Set().String(), &u.UDPPort) // anything else stays a difference
		}
	}
}

// single returns the address of a prefix of one address; the zero Addr for anything else.
func single(text string) netip.Addr {
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.IsSingleIP() {
		return netip.Addr{}
	}
	return p.Addr()
}
