// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Mermaid returns the plan's chains as a Mermaid flowchart
// (https://mermaid.js.org/syntax/flowchart.html), which GitHub and other sites render in documents.
// A hook of a table is a rounded node, a chain a box, a packet's fate a box with cut corners. An
// arrow carries the rules that lead to its target, each with its number in the chain and its match;
// rules of a chain with the same target share an arrow. Only tables are shown.
func Mermaid(p *interception.Plan) string {
	m := mermaid{nodes: map[string]string{}}
	m.text.WriteString("flowchart LR\n")
	for table := range p.Tables() {
		m.table(table)
	}
	return m.text.String()
}

// mermaid is a flowchart in progress.
type mermaid struct {
	text strings.Builder
	// nodes are the names of the nodes by their text.
	nodes map[string]string
}

func (m *mermaid) table(t interception.Table) {
	for _, entry := range t.Entries {
		hook := m.node(fmt.Sprintf("%s %s", t.Kind, entry.Hook), "([", "])")
		m.arrow(hook, []string{matchText(entry.Match)}, m.chain(t.Kind, entry.Chain))
	}
	for _, chain := range t.Chains {
		from := m.chain(t.Kind, chain.Name)
		var targets []string
		labels := map[string][]string{}
		for i, rule := range chain.Rules {
			to := m.target(t.Kind, rule.Action)
			if labels[to] == nil {
				targets = append(targets, to)
			}
			labels[to] = append(labels[to], fmt.Sprintf("%d. %s", i+1, matchText(rule.Match)))
		}
		for _, to := range targets {
			m.arrow(from, labels[to], to)
		}
	}
}

// target returns the node that an action leads to.
func (m *mermaid) target(kind interception.TableKind, action interception.Action) string {
	if jump, ok := action.(interception.Jump); ok {
		return m.chain(kind, jump.Chain)
	}
	return m.node(kind.String()+": "+actionText(action), "{{", "}}")
}

func (m *mermaid) chain(kind interception.TableKind, name interception.ChainName) string {
	return m.node(fmt.Sprintf("%s/%s", kind, name), "[", "]")
}

// node returns the name of the node with the text. It writes the node the first time.
func (m *mermaid) node(text, opening, closing string) string {
	name, ok := m.nodes[text]
	if !ok {
		name = fmt.Sprintf("n%d", len(m.nodes)+1)
		m.nodes[text] = name
		fmt.Fprintf(&m.text, "  %s%s\"%s\"%s\n", name, opening, mermaidText(text), closing)
	}
	return name
}

func (m *mermaid) arrow(from string, labels []string, to string) {
	for i, label := range labels {
		labels[i] = mermaidText(label)
	}
	fmt.Fprintf(&m.text, "  %s -- \"%s\" --> %s\n", from, strings.Join(labels, "<br>"), to)
}

// mermaidText replaces Mermaid's syntax characters by character entities.
func mermaidText(text string) string {
	return strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;").Replace(text)
}
