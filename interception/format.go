// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// String returns the plan's golden form, for people and for comparison: one line for each object,
// entry and rule, provenance included. It ends in a newline.
func (p *Plan) String() string { return p.text(true) }

// Fingerprint returns a name for what the plan puts into the kernel: 16 hexadecimal digits of the
// SHA-256 of its text without provenance. Two plans with the same rules, ids and reasons have the
// same fingerprint, whatever annotations made them.
func (p *Plan) Fingerprint() string {
	sum := sha256.Sum256([]byte(p.text(false)))
	return hex.EncodeToString(sum[:8])
}

func (p *Plan) text(provenance bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %s\n", p.Owner)
	for _, object := range p.Objects {
		switch o := object.(type) {
		case Link:
			writeObject(&b, provenance, o.text(), o.ID, o.Why, o.From)
		case Address:
			writeObject(&b, provenance, o.text(), o.ID, o.Why, o.From)
		case Sysctl:
			writeObject(&b, provenance, o.text(), o.ID, o.Why, o.From)
		case Route:
			writeObject(&b, provenance, o.text(), o.ID, o.Why, o.From)
		case PolicyRule:
			writeObject(&b, provenance, o.text(), o.ID, o.Why, o.From)
		case Set:
			fmt.Fprintf(&b, "%s  # %s\n", o.text(), o.Why)
			writeSources(&b, provenance, o.From)
		case Table:
			writeTable(&b, provenance, o)
		}
	}
	return b.String()
}

func writeObject(b *strings.Builder, provenance bool, text string, id RuleID, why string, from []Source) {
	fmt.Fprintf(b, "%s  # %s: %s\n", text, id, why)
	writeSources(b, provenance, from)
}

func writeTable(b *strings.Builder, provenance bool, t Table) {
	fmt.Fprintf(b, "table %s\n", t.Kind)
	for _, e := range t.Entries {
		fmt.Fprintf(b, "  %s  # %s: %s\n", e.text(), e.ID, e.Why)
	}
	for _, chain := range t.Chains {
		fmt.Fprintf(b, "  chain %s\n", chain.Name)
		for _, r := range chain.Rules {
			fmt.Fprintf(b, "    %s  # %s: %s\n", conditions(r.Match, r.Action), r.ID, r.Why)
			writeSources(b, provenance, r.From)
		}
	}
}

// text returns "hook output: tcp -> jump output", with the offset unless it is 0.
func (e Entry) text() string {
	hook := e.Hook.String()
	if e.Offset != 0 {
		hook += fmt.Sprintf("%+d", e.Offset)
	}
	return "hook " + hook + ": " + conditions(e.Match, Jump{e.Chain})
}

// conditions returns "tcp dport 80 -> return", or "any -> return" for a rule without conditions.
func conditions(m Match, a Action) string {
	words := cmp.Or(m.String(), "any")
	return fmt.Sprintf("%s -> %v", words, a)
}

func writeSources(b *strings.Builder, provenance bool, from []Source) {
	if !provenance {
		return
	}
	for _, source := range from {
		fmt.Fprintf(b, "      from %s\n", source)
	}
}

// Comment returns the rule's comment in the kernel: its id, eight hexadecimal digits of a hash of
// its match and action, and its reason, at most 128 bytes of a closed alphabet. It is a hint for
// people and never proof: a program that can edit the rule can keep the comment.
func (r Rule) Comment() string { return comment(r.ID, conditions(r.Match, r.Action), r.Why) }

// Comment returns the comment of the entry's jump in the kernel, as [Rule.Comment] does.
func (e Entry) Comment() string { return comment(e.ID, conditions(e.Match, Jump{e.Chain}), e.Why) }

// commentHash is the number of bytes of the hash in a comment.
const commentHash = 4

func comment(id RuleID, content, why string) string {
	sum := sha256.Sum256([]byte(content))
	return string(id) + " " + hex.EncodeToString(sum[:commentHash]) + " " + why
}
