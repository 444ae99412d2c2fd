// SPDX-License-Identifier: Apache-2.0

package rulesdoc

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// condition describes the points at which a part exists: those of any of its cubes.
type condition []cube

// cube is a part of the space: for each parameter the values that it allows, by their index. It
// allows all values of parameters that it does not name.
type cube map[int][]int

func (c cube) contains(at sample.Point) bool {
	for i, values := range c {
		if !slices.Contains(values, at[i]) {
			return false
		}
	}
	return true
}

func (c condition) holds(at sample.Point) bool {
	return slices.ContainsFunc(c, func(x cube) bool { return x.contains(at) })
}

// learn finds when a part exists, and refines the condition until no point contradicts it.
func (p *planner) learn(id interception.RuleID, points []sample.Point) (condition, error) {
	first := slices.IndexFunc(points, func(at sample.Point) bool { return p.ask(at).has(id) })
	witnesses := []sample.Point{p.nearest(points[first], id)}
	for range 20 {
		c := p.condition(id, witnesses)
		wrong := slices.IndexFunc(points, func(at sample.Point) bool { return p.ask(at).has(id) != c.holds(at) })
		if wrong < 0 {
			return c, nil
		}
		witnesses = append(witnesses, p.between(witnesses[0], points[wrong])...)
	}
	return nil, fmt.Errorf("%s: no condition is found: let learn ask for longer", id)
}

// between returns the points on the way from one point to another, one parameter after the other,
// and on the way that changes the last parameter first: on one of the ways, the redirects may
// contradict themselves.
func (p *planner) between(from, to sample.Point) []sample.Point {
	var points []sample.Point
	forth, back := from, from
	for i := range to {
		last := len(to) - 1 - i
		forth, back = forth.With(i, to[i]), back.With(last, to[last])
		for _, at := range []sample.Point{forth, back} {
			if p.ask(at).valid {
				points = append(points, at)
			}
		}
	}
	return points
}

// condition finds when a part exists, as far as the given points show. It tries every combination
// of the values of all relevant parameters, and then takes as few and as large cubes as possible
// that cover exactly the points with the part.
func (p *planner) condition(id interception.RuleID, witnesses []sample.Point) condition {
	relevant := p.relevant(id, witnesses)
	var with, without []sample.Point
	for _, at := range p.product(witnesses[0], relevant) {
		if a := p.ask(p.repaired(at, relevant, witnesses)); a.valid && a.has(id) {
			with = append(with, at)
		} else if a.valid {
			without = append(without, at)
		}
	}
	var all condition
	for _, at := range with {
		if !all.holds(at) {
			all = append(all, p.expand(at, relevant, with, without))
		}
	}
	return all.needed(with)
}

// repaired returns a point whose redirect does not contradict itself, if other parameters of some
// witness achieve that.
func (p *planner) repaired(at sample.Point, relevant []int, witnesses []sample.Point) sample.Point {
	for _, w := range witnesses {
		for _, i := range relevant {
			w = w.With(i, at[i])
		}
		if p.ask(w).valid {
			return w
		}
	}
	return at
}

// relevant returns the parameters whose change alone adds or removes the part at some witness.
func (p *planner) relevant(id interception.RuleID, witnesses []sample.Point) []int {
	var relevant []int
	for i, parameter := range p.Parameters {
		if slices.ContainsFunc(witnesses, func(at sample.Point) bool {
			for value := range parameter.Values {
				if a := p.ask(at.With(i, value)); a.valid && a.has(id) != p.ask(at).has(id) {
					return true
				}
			}
			return false
		}) {
			relevant = append(relevant, i)
		}
	}
	return relevant
}

// product returns the points that have every combination of some parameters' values.
func (p *planner) product(at sample.Point, parameters []int) []sample.Point {
	points := []sample.Point{at}
	for _, i := range parameters {
		var more []sample.Point
		for _, point := range points {
			for value := range p.Parameters[i].Values {
				more = append(more, point.With(i, value))
			}
		}
		points = more
	}
	return points
}

// expand returns the largest cube around a point without a point from outside. For each parameter
// it allows only values of points inside: without a port for connections, for example, there is no
// plan at all.
func (p *planner) expand(at sample.Point, relevant []int, inside, outside []sample.Point) cube {
	c := cube{}
	for _, i := range relevant {
		c[i] = []int{at[i]}
	}
	for _, i := range relevant {
		for value := range p.Parameters[i].Values {
			if value == at[i] || !slices.ContainsFunc(inside, func(x sample.Point) bool { return x[i] == value }) {
				continue
			}
			c[i] = append(c[i], value)
			if slices.ContainsFunc(outside, c.contains) {
				c[i] = c[i][:len(c[i])-1]
			}
		}
		slices.Sort(c[i])
		if len(c[i]) == len(p.Parameters[i].Values) {
			delete(c, i)
		}
	}
	return c
}

// needed removes the cubes without which the rest still covers the points.
func (c condition) needed(points []sample.Point) condition {
	for i := 0; i < len(c); {
		rest := slices.Delete(slices.Clone(c), i, i+1)
		if slices.ContainsFunc(points, func(at sample.Point) bool { return !rest.holds(at) }) {
			i++
		} else {
			c = rest
		}
	}
	return c
}

// say returns a condition in words: phrases that must all hold, empty without a condition.
func (p *planner) say(c condition) []string {
	var phrases []string
	for _, factor := range p.factors(c) {
		cases := make([]string, len(factor))
		for i, x := range factor {
			cases[i] = p.sayCube(x)
		}
		if slices.Contains(cases, "") {
			continue
		}
		slices.SortStableFunc(cases, func(a, b string) int { return len(a) - len(b) })
		phrases = append(phrases, strings.Join(cases, ", or "))
	}
	return phrases
}

// factors returns conditions on different parameters that must all hold for c to hold.
func (p *planner) factors(c condition) []condition {
	var named []int
	for i := range p.Parameters {
		if slices.ContainsFunc(c, func(x cube) bool { return x[i] != nil }) {
			named = append(named, i)
		}
	}
	for chosen := 1; chosen < 1<<len(named)-1; chosen++ {
		var some, rest []int
		for bit, i := range named {
			if chosen>>bit&1 == 1 {
				some = append(some, i)
			} else {
				rest = append(rest, i)
			}
		}
		if a, b := c.on(some), c.on(rest); len(a)*len(b) == len(c) {
			return append(p.factors(a), p.factors(b)...)
		}
	}
	return []condition{c}
}

// on returns the cubes restricted to some parameters, without duplicates.
func (c condition) on(parameters []int) condition {
	var all condition
	for _, x := range c {
		part := cube{}
		for _, i := range parameters {
			if x[i] != nil {
				part[i] = x[i]
			}
		}
		if !slices.ContainsFunc(all, func(y cube) bool { return maps.EqualFunc(part, y, slices.Equal) }) {
			all = append(all, part)
		}
	}
	return all
}

func (p *planner) sayCube(c cube) string {
	var words []string
	for i, parameter := range p.Parameters {
		if values := c[i]; values != nil {
			words = append(words, sayValues(parameter, values))
		}
	}
	return strings.Join(words, " and ")
}

// sayValues describes values of a parameter.
func sayValues(p sample.Parameter, values []int) string {
	var names, others []string
	for i, value := range p.Values {
		if slices.Contains(values, i) {
			names = append(names, value.Name)
		} else {
			others = append(others, value.Name)
		}
	}
	for _, kind := range p.Kinds {
		if len(kind.Values) == len(names) && !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(kind.Values, name) }) {
			return fmt.Sprintf("`%s` %s", p.Field, kind.Phrase)
		}
	}
	if len(others) < len(names) || slices.Equal(others, []string{sample.Empty}) {
		return fmt.Sprintf("`%s` is not %s", p.Field, strings.Join(others, " nor "))
	}
	return fmt.Sprintf("`%s` is %s", p.Field, strings.Join(names, " or "))
}
