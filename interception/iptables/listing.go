// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// listing is the output of iptables-save for one family, or the input of iptables-restore.
type listing struct {
	tables []listedTable
	// hidden are the tables that iptables-nft-save cannot print, because another program has added
	// rules that iptables does not know.
	hidden []string
}

// listedTable is a table of a listing, with all its chains.
type listedTable struct {
	name   string
	chains []listedChain
	last   int // the index of the chain that got a rule last: rules come chain by chain
}

// listedChain is a chain with its rules in order. The kernel's own chains have a policy.
type listedChain struct {
	name   string
	kernel bool
	policy string // of the kernel's chains
	rules  []listedRule
}

// listedRule is a rule without its chain.
type listedRule struct {
	text   string
	insert bool // goes ahead of the existing rules
}

// words returns the rule's words. The parser has refused rules that cannot be split.
func (r listedRule) words() []string {
	words, _ := splitWords(r.text)
	return words
}

// leadsTo reports whether the rule leads to a chain whose name begins so. It splits few of many
// rules into words: a name without blanks stands in the text as it is, unless quotes are in it.
func (r listedRule) leadsTo(prefix string) bool {
	return (strings.Contains(r.text, prefix) || strings.Contains(r.text, `"`)) && strings.HasPrefix(jumpTarget(r.words()), prefix)
}

// parseListing parses iptables-save's output, with or without counters, and package render's texts.
func parseListing(text string) (listing, error) {
	var l listing
	number := 0
	for line := range strings.Lines(text) {
		number++
		if err := l.line(strings.TrimRight(line, "\r\n")); err != nil {
			return listing{}, fmt.Errorf("line %d of the listing, %.200q: %w", number, line, err)
		}
	}
	return l, nil
}

// hiddenMark is in the message of iptables-nft-save about a table that it cannot print.
const hiddenMark = "' is incompatible, use 'nft' tool."

func (l *listing) line(line string) error {
	if name, ok := strings.CutPrefix(line, "# Table `"); ok {
		if name, ok := strings.CutSuffix(name, hiddenMark); ok {
			l.hidden = append(l.hidden, name)
		}
		return nil
	}
	if name, ok := strings.CutPrefix(line, "*"); ok {
		l.tables = append(l.tables, listedTable{name: name})
		return nil
	}
	if line == "" || line == "COMMIT" || line[0] == '#' {
		return nil
	}
	if line[0] == '[' { // counters
		if _, rest, ok := strings.Cut(line, "] "); ok {
			line = rest
		}
	}
	if len(l.tables) == 0 {
		return errors.New("it is in no table")
	}
	return l.tables[len(l.tables)-1].line(line)
}

func (t *listedTable) line(line string) error {
	command, rest, _ := strings.Cut(line, " ")
	if name, ok := strings.CutPrefix(command, ":"); ok {
		policy, _, _ := strings.Cut(rest, " ")
		t.chains = append(t.chains, listedChain{name: name, kernel: policy != "-", policy: policy})
		return nil
	}
	switch command {
	case "-N":
		t.chains = append(t.chains, listedChain{name: rest})
		return nil
	case "-A", "-I":
		name, text, _ := strings.Cut(rest, " ")
		if command == "-I" {
			_, text, _ = strings.Cut(text, " ") // the position, which counters may precede
		}
		return t.rule(name, text, command == "-I")
	default:
		return errors.New("it is neither a chain nor a rule")
	}
}

// rule adds a rule to a chain. Texts for iptables-restore do not declare the kernel's chains.
func (t *listedTable) rule(chain, text string, insert bool) error {
	if strings.Contains(text, `"`) { // a line without quotes can always be split
		if _, err := splitWords(text); err != nil {
			return err
		}
	}
	if t.last >= len(t.chains) || t.chains[t.last].name != chain {
		t.last = slices.IndexFunc(t.chains, func(c listedChain) bool { return c.name == chain })
	}
	if t.last < 0 {
		t.last = len(t.chains)
		t.chains = append(t.chains, listedChain{name: chain, kernel: true})
	}
	t.chains[t.last].rules = append(t.chains[t.last].rules, listedRule{text, insert})
	return nil
}

// kernelChains returns the chains of all tables.
func (l listing) kernelChains() []kernelChain {
	var chains []kernelChain
	for _, t := range l.tables {
		for _, c := range t.chains {
			chains = append(chains, kernelChain{table: t.name, name: c.name, base: c.kernel})
		}
	}
	return chains
}

// kindOf returns the table of a name; false for tables that no plan has, such as security.
func kindOf(name string) (interception.TableKind, bool) {
	for _, kind := range interception.TableKinds() {
		if kind.String() == name {
			return kind, true
		}
	}
	return 0, false
}

// splitWords splits a line of iptables-save as iptables-restore does: blanks separate words, a part
// in double quotes may have blanks, and in it a backslash precedes a quote, an apostrophe or a
// backslash (xtables_save_string).
func splitWords(line string) ([]string, error) {
	var words []string
	for rest := strings.TrimLeft(line, " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		word, after, err := cutWord(rest)
		if err != nil {
			return nil, err
		}
		words, rest = append(words, word), after
	}
	return words, nil
}

// cutWord returns the first word of a text that begins with one, and the rest.
func cutWord(text string) (word, rest string, err error) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			quoted = !quoted
			continue
		case c == '\\' && quoted && i+1 < len(text):
			i++
		case (c == ' ' || c == '\t') && !quoted:
			return b.String(), text[i:], nil
		}
		b.WriteByte(text[i])
	}
	if quoted {
		return "", "", errors.New("a quote is not closed")
	}
	return b.String(), "", nil
}

// jumpTarget returns the target of -j or -g: a chain, or a target of iptables; "" when the rule has
// neither. Any program may have written the words: after a "-j" that is the value of an option,
// such as a comment, comes an option or the end, not a name.
func jumpTarget(words []string) string {
	for i := len(words) - 2; i >= 0; i-- {
		if (words[i] == "-j" || words[i] == "-g") && !strings.HasPrefix(words[i+1], "-") && words[i+1] != "!" {
			return words[i+1]
		}
	}
	return ""
}
