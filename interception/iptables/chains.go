// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// kernelChain is a chain as the kernel reports it, without a program.
type kernelChain struct {
	table, name string
	base        bool // attached to a hook
	uses        int  // the rules in the chain, and those of other chains that lead to it
}

// manyRules is from how many rules of other programs on a listing of the owner's chains alone takes
// less time than one of all rules.
const manyRules = 200

// crowded reports whether iptables has many rules of others.
func crowded(chains []kernelChain, prefix string) bool {
	others := 0
	for _, c := range chains {
		if _, ofIPTables := kindOf(c.table); ofIPTables && !strings.HasPrefix(c.name, prefix) {
			others += c.uses
		}
	}
	return others >= manyRules
}

// question is an input of iptables-restore that changes nothing and lists chains.
type question struct {
	lines []string
	asked []kernelChain // in this order
}

// ask returns the question for the owner's chains, and for the kernel's own, from which jumps lead
// to the owner's: what is known of a hook puts a jump back into its former place.
func ask(chains []kernelChain, prefix string) question {
	var q question
	for _, kind := range interception.TableKinds() {
		asked := inOrder(chains, kind, prefix)
		if len(asked) == 0 {
			continue
		}
		q.lines = append(q.lines, "*"+kind.String())
		for _, c := range asked {
			q.lines = append(q.lines, "-S "+c.name)
		}
		q.lines, q.asked = append(q.lines, "COMMIT"), append(q.asked, asked...)
	}
	return q
}

// inOrder returns the kernel's own chains of a table and then the owner's, in the order of
// iptables-save.
func inOrder(chains []kernelChain, kind interception.TableKind, prefix string) []kernelChain {
	var bases, own []kernelChain
	for _, h := range kind.Hooks() {
		for _, c := range chains {
			if c.base && c.table == kind.String() && c.name == strings.ToUpper(h.String()) {
				bases = append(bases, c)
			}
		}
	}
	for _, c := range chains {
		if !c.base && c.table == kind.String() && strings.HasPrefix(c.name, prefix) {
			own = append(own, c)
		}
	}
	slices.SortFunc(own, func(a, b kernelChain) int { return strings.Compare(a.name, b.name) })
	return append(bases, own...)
}

// listing parses the answer. It returns false if that is not what was asked for, or if another
// program's chain may lead to one of the owner's, which only a listing of all rules shows.
func (q question) listing(answer, prefix string) (listing, bool) {
	var text strings.Builder
	left := q.asked
	table := ""
	for line := range strings.Lines(answer) {
		line = strings.TrimRight(line, "\r\n")
		command, rest, _ := strings.Cut(line, " ")
		name, policy, _ := strings.Cut(rest, " ")
		if command == "-P" || command == "-N" {
			if len(left) == 0 || left[0].name != name || left[0].base != (command == "-P") {
				return listing{}, false
			}
			if left[0].table != table {
				table = left[0].table
				text.WriteString("*" + table + "\n")
			}
			left, line = left[1:], ":"+name+" -"
			if command == "-P" {
				line = ":" + name + " " + policy
			}
		}
		text.WriteString(line + "\n")
	}
	l, err := parseListing(text.String())
	return l, err == nil && len(left) == 0 && q.complete(l, prefix)
}

// complete reports whether a listing has everything that uses the owner's chains.
func (q question) complete(l listing, prefix string) bool {
	uses := map[[2]string]int{}
	for _, t := range l.tables {
		for _, c := range t.chains {
			uses[[2]string{t.name, c.name}] += len(c.rules)
			for _, r := range c.rules {
				uses[[2]string{t.name, jumpTarget(r.words())}]++
			}
		}
	}
	return !slices.ContainsFunc(q.asked, func(c kernelChain) bool {
		return strings.HasPrefix(c.name, prefix) && uses[[2]string{c.table, c.name}] != c.uses
	})
}
