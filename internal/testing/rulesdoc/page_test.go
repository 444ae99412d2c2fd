// SPDX-License-Identifier: Apache-2.0

package rulesdoc

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// Golden is the part of a golden case that the document refers to.
type Golden struct {
	Name string
	Plan *interception.Plan
}

// sampled is the number of random points.
const sampled = 3000

// document collects the planner's answers.
type document struct {
	*planner
	explanations
	points  []sample.Point
	order   []interception.RuleID
	groups  []group
	goldens map[interception.RuleID][]string
}

// group is a rule with its variants for families and for users and groups.
type group struct {
	base interception.RuleID
	ids  []interception.RuleID
	part part // of the first id, at its first example
}

// Document returns docs/rules.md, made from the golden cases and the explanations
// (explanations.txt). It returns an error for an inconsistency: a condition that cannot be found, a
// rule without an explanation, an explanation without a rule, rules whose order varies.
func Document(goldens []Golden, written string) ([]byte, error) {
	d := &document{planner: newPlanner(), explanations: parseExplanations(written), goldens: map[interception.RuleID][]string{}}
	d.points = d.sample(sampled)
	for _, g := range goldens {
		for _, x := range partsOf(g.Plan) {
			d.goldens[x.id] = append(d.goldens[x.id], g.Name)
		}
	}
	var err error
	if d.order, err = d.ordered(); err != nil {
		return nil, err
	}
	d.group()
	if err := d.checkExplanations(); err != nil {
		return nil, err
	}
	return d.write()
}

// ordered returns the parts of all plans in the one order that every plan keeps.
func (d *document) ordered() ([]interception.RuleID, error) {
	// The parts that come directly before a part in some plan.
	before := map[interception.RuleID]map[interception.RuleID]bool{}
	var left []interception.RuleID
	for _, at := range d.points {
		last := interception.RuleID("")
		for _, id := range d.ask(at).ids {
			if before[id] == nil {
				before[id] = map[interception.RuleID]bool{}
				left = append(left, id)
			}
			if !isSet(id) || !isSet(last) { // sets have no order
				before[id][last] = true
			}
			last = id
		}
	}
	var order []interception.RuleID
	for len(left) > 0 {
		next := slices.IndexFunc(left, func(id interception.RuleID) bool {
			return !slices.ContainsFunc(left, func(other interception.RuleID) bool { return before[id][other] })
		})
		if next < 0 {
			return nil, fmt.Errorf("the rules %v stand in one order in one plan, and in another one in another", left)
		}
		order = append(order, left[next])
		left = slices.Delete(left, next, next+1)
	}
	return order, nil
}

func isSet(id interception.RuleID) bool { return strings.HasPrefix(string(id), "@") }

// base is an id without the parts that distinguish variants of a rule.
func base(id interception.RuleID) interception.RuleID {
	words := strings.FieldsFunc(string(id), func(c rune) bool { return c == '.' })
	words = slices.DeleteFunc(words, func(word string) bool { return slices.Contains([]string{"v4", "v6", "uid", "gid"}, word) })
	name := strings.Join(words, ".")
	for _, family := range []string{"-v4", "-v6"} {
		name = strings.TrimSuffix(name, family)
	}
	return interception.RuleID(name)
}

// group joins variants of a rule, at the place of the first.
func (d *document) group() {
	for _, id := range d.order {
		i := slices.IndexFunc(d.groups, func(g group) bool { return g.base == base(id) })
		if i < 0 {
			i = len(d.groups)
			d.groups = append(d.groups, group{base: base(id)})
		}
		d.groups[i].ids = append(d.groups[i].ids, id)
		if isSet(id) { // they are in no order
			slices.Sort(d.groups[i].ids)
		}
	}
	for i, g := range d.groups {
		at := slices.IndexFunc(d.points, func(at sample.Point) bool { return d.ask(at).has(g.ids[0]) })
		d.groups[i].part = d.part(d.points[at], g.ids[0])
	}
}

func (d *document) checkExplanations() error {
	var errs []error
	left := maps.Clone(d.texts)
	for _, g := range d.groups {
		if left[g.base] == "" {
			errs = append(errs, fmt.Errorf("%s (%s) has no explanation: write one into internal/testing/rulesdoc/explanations.txt", g.base, g.part.why))
		}
		delete(left, g.base)
	}
	for _, id := range slices.Sorted(maps.Keys(left)) {
		errs = append(errs, fmt.Errorf("the planner makes no %s: remove its explanation", id))
	}
	return errors.Join(errs...)
}

// explanations are the handwritten texts: the head of the document, and for each rule, by its id
// without family and kind of owner, its purpose.
type explanations struct {
	head  string
	texts map[interception.RuleID]string
}

// parseExplanations parses the head and the explanations, each after a line "=== id".
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
