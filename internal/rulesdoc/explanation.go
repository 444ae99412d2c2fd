// SPDX-License-Identifier: Apache-2.0

package rulesdoc

import (
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// explanations are what is written by hand: the head of the document, and for each rule, by its id without family and kind of owner, what
// it is for.
type explanations struct {
	head  string
	texts map[interception.RuleID]string
}

// parseExplanations reads the head and, behind a line "=== id" each, the explanations.
func parseExplanations(text string) explanations {
	const mark = "\n=== "
	head, rest, found := strings.Cut(text, mark)
	e := explanations{strings.TrimSpace(head), map[interception.RuleID]string{}}
	for found {
		var part string
		part, rest, found = strings.Cut(rest, mark)
		id, explanation, _ := strings.Cut(part, "\n")
		e.texts[interception.RuleID(id)] = strings.TrimSpace(explanation)
	}
	return e
}
