// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/meshcni/meshcni/interception"
)

// String returns the explanation as a table for people: for each region the direction, the
// conditions, the effect, the rule with its reason, and its provenance. Read the rows of a
// direction from the top: each is about the packets that the rows above leave. Its form is stable,
// for golden files.
func (x Explanation) String() string {
	if len(x.Regions) == 0 {
		return "no packet is as the query asks\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	rows := []string{"DIRECTION\tWHEN\tEFFECT\tRULE\tWHY"}
	for _, r := range x.Regions {
		if r.Decides == nil {
			rows = append(rows, fmt.Sprintf("%s\tanything else\t%s\tnone\tno rule decides", r.Direction, r.Effect))
			continue
		}
		rule := r.Decides.Rule
		rows = append(rows, strings.Join([]string{r.Direction.String(), r.when(), r.effect(), r.Decides.String(), rule.Why}, "\t"))
		for _, source := range rule.From {
			rows = append(rows, "\t\t\t\t  from "+source.String())
		}
	}
	_, _ = io.WriteString(w, strings.Join(rows, "\n")+"\n") // a strings.Builder takes everything
	_ = w.Flush()
	return trimLines(b.String())
}

// trimLines removes the blanks that a table leaves at the ends of lines.
func trimLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// when returns the conditions in one line.
func (r Region) when() string {
	text := strings.Join(r.Ways(), "; or ")
	if r.OverLoopback {
		return "over lo: " + text
	}
	return text
}

// Ways returns the distinct ways of When in words, without conditions that a narrower one of the
// same way implies: "tcp dport 15008", "in eth0 and uid 1337". A way without conditions is "any".
func (r Region) Ways() []string {
	var ways []string
	for _, way := range r.When {
		if text := wayText(way); !slices.Contains(ways, text) {
			ways = append(ways, text)
		}
	}
	return ways
}

// wayText returns the conditions of a way, without those that another condition implies.
func wayText(way []interception.Match) string {
	var kept []string
	for i, m := range way {
		text := m.String()
		repeated := false
		for j, other := range way {
			says := strings.Contains(" "+other.String()+" ", " "+text+" ")
			repeated = repeated || j != i && says && (j > i || other.String() != text)
		}
		if text != "" && !repeated {
			kept = append(kept, text)
		}
	}
	if kept == nil {
		return "any"
	}
	return strings.Join(kept, " and ")
}

// effect returns the effect, in the words of the action where that is more precise.
func (r Region) effect() string {
	if r.Effect == Captured || r.Effect == Rerouted {
		return fmt.Sprintf("%s: %v", r.Effect, r.Decides.Rule.Action)
	}
	return r.Effect.String()
}
