// SPDX-License-Identifier: Apache-2.0

package interception

import "slices"

// pairing pairs the lines of two lists of one place. Values are indices in the other list, or none.
type pairing struct {
	want, got list
	wantTo    []int
	gotTo     []int
	kinds     []DriftKind // of the wanted lines; "" for those that stay
}

const none = -1

// compare returns the differences between two lists of one place. The longest common subsequence
// stays. Of the rest, equal lines have moved; lines with equal ids or neighbours were changed.
func compare(want, got list) []Drift {
	if want.live {
		want.lines, got.lines = want.lines[:1], got.lines[:min(1, len(got.lines))]
	}
	p := &pairing{want: want, got: got, wantTo: slices.Repeat([]int{none}, len(want.lines)), gotTo: slices.Repeat([]int{none}, len(got.lines))}
	p.kinds = make([]DriftKind, len(want.lines))
	if want.unordered || got.unordered {
		p.pair("", func(l line) []string { return []string{l.text} })
		p.pair(DriftChanged, func(l line) []string { return l.keys })
	} else {
		for _, match := range longestCommon(want.lines, got.lines) {
			p.join(match[0], match[1], "")
		}
		p.pair(DriftMoved, func(l line) []string { return []string{l.text} })
		p.pair(DriftChanged, func(l line) []string { return []string{string(l.id)} })
		p.pairGaps()
	}
	return p.drifts()
}

func (p *pairing) join(i, j int, kind DriftKind) { p.wantTo[i], p.gotTo[j], p.kinds[i] = j, i, kind }

// pair joins lines that have a key in common, in order; earlier keys take precedence.
func (p *pairing) pair(kind DriftKind, keys func(line) []string) {
	for n, more := 0, true; more; n++ {
		more = false
		places := map[string][]int{}
		for j, l := range p.got.lines {
			if k := keys(l); p.gotTo[j] == none && n < len(k) && k[n] != "" {
				places[k[n]] = append(places[k[n]], j)
			}
		}
		for i, l := range p.want.lines {
			k := keys(l)
			if p.wantTo[i] != none || n >= len(k) {
				continue
			}
			more = true
			if left := places[k[n]]; len(left) > 0 {
				p.join(i, left[0], kind)
				places[k[n]] = left[1:]
			}
		}
	}
}

// gaps returns, for each line, how many lines before it stay.
func gaps(to []int, stays func(i int) bool) []int {
	numbers, n := make([]int, len(to)), 0
	for i := range to {
		if numbers[i] = n; stays(i) {
			n++
		}
	}
	return numbers
}

func (p *pairing) wantGaps() []int {
	return gaps(p.wantTo, func(i int) bool { return p.wantTo[i] != none && p.kinds[i] == "" })
}

func (p *pairing) gotGaps() []int {
	return gaps(p.gotTo, func(j int) bool { return p.gotTo[j] != none && p.kinds[p.gotTo[j]] == "" })
}

// pairGaps joins the remaining lines between equal neighbours, but never a chain with a rule.
func (p *pairing) pairGaps() {
	wantGaps, gotGaps := p.wantGaps(), p.gotGaps()
	for i, j := 0, 0; i < len(wantGaps) && j < len(gotGaps); {
		switch {
		case p.wantTo[i] != none || wantGaps[i] < gotGaps[j]:
			i++
		case p.gotTo[j] != none || gotGaps[j] < wantGaps[i]:
			j++
		case p.want.lines[i].head != p.got.lines[j].head:
			i++
		default:
			p.join(i, j, DriftChanged)
			i, j = i+1, j+1
		}
	}
}

// drifts returns the differences in the plan's order, extra lines at their place in the kernel.
func (p *pairing) drifts() []Drift {
	wantGaps, gotGaps := p.wantGaps(), p.gotGaps()
	var drifts []Drift
	i := 0
	wanted := func(upTo int) {
		for ; i < len(wantGaps) && wantGaps[i] <= upTo; i++ {
			l := p.want.lines[i]
			d := Drift{Kind: p.kinds[i], At: p.want.at, ID: l.id, Why: l.why, Want: l.shown}
			switch {
			case p.wantTo[i] == none:
				d.Kind = DriftMissing
			case d.Kind == "":
				continue
			default:
				d.Got = p.got.lines[p.wantTo[i]].shown
			}
			drifts = append(drifts, d)
		}
	}
	for j, l := range p.got.lines {
		if p.gotTo[j] == none {
			wanted(gotGaps[j])
			drifts = append(drifts, Drift{Kind: DriftExtra, At: p.got.at, Got: l.shown})
		}
	}
	wanted(len(wantGaps))
	return drifts
}

// longestCommon returns the pairs of a longest common subsequence of two lists.
func longestCommon(a, b []line) [][2]int {
	var pairs [][2]int
	start := 0
	for start < len(a) && start < len(b) && a[start].text == b[start].text {
		pairs = append(pairs, [2]int{start, start})
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end].text == b[len(b)-1-end].text {
		end++
	}
	for _, pair := range middle(a[start:len(a)-end], b[start:len(b)-end]) {
		pairs = append(pairs, [2]int{start + pair[0], start + pair[1]})
	}
	for i := end; i > 0; i-- {
		pairs = append(pairs, [2]int{len(a) - i, len(b) - i})
	}
	return pairs
}

// maxTable bounds the memory of a comparison: a root process in a pod may have filled a chain.
const maxTable = 1 << 24

// middle is longestCommon for lists that begin and end with different lines. For very long lists it
// falls back to a greedy search, which may find fewer pairs.
func middle(a, b []line) [][2]int {
	if (len(a)+1)*(len(b)+1) > maxTable {
		return greedy(a, b)
	}
	table := make([][]int32, len(a)+1)
	for i := range table {
		table[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i].text == b[j].text {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	var pairs [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i].text == b[j].text:
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case table[i+1][j] >= table[i][j+1]:
			i++
		default:
			j++
		}
	}
	return pairs
}

func greedy(a, b []line) [][2]int {
	places := map[string][]int{}
	for j, l := range b {
		places[l.text] = append(places[l.text], j)
	}
	var pairs [][2]int
	last := none
	for i, l := range a {
		at := places[l.text]
		for len(at) > 0 && at[0] <= last {
			at = at[1:]
		}
		if places[l.text] = at; len(at) > 0 {
			last = at[0]
			pairs = append(pairs, [2]int{i, last})
		}
	}
	return pairs
}
