// SPDX-License-Identifier: Apache-2.0

package rulesdoc

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

// rendering is a plan as the tools show it: the lines of each part, without the comments, and their
// chains.
type rendering struct {
	nft, iptables4, iptables6 rendered
}

// rendered is the output of one tool.
type rendered struct {
	lines  map[interception.RuleID][]string
	chains map[interception.RuleID]string
}

func newRendered() rendered {
	return rendered{map[interception.RuleID][]string{}, map[interception.RuleID]string{}}
}

func (r rendered) add(id interception.RuleID, chain, line string) {
	r.lines[id] = append(r.lines[id], line)
	r.chains[id] = chain
}

func renderingOf(plan *interception.Plan) (rendering, error) {
	script, err := render.NFT(plan)
	if err != nil {
		return rendering{}, err
	}
	all := rendering{nft: readNFT(string(script))}
	for family, into := range map[interception.Family]*rendered{interception.IPv4: &all.iptables4, interception.IPv6: &all.iptables6} {
		text, err := render.IPTablesRestore(plan, family)
		if err != nil {
			return rendering{}, err
		}
		*into = readIPTables(string(text))
	}
	return all, nil
}

// readNFT reads a script: rules by the id in their comment, the objects that are not nft's from its
// head, and sets whole.
func readNFT(script string) rendered {
	r := newRendered()
	chain, set := "", interception.RuleID("")
	for line := range strings.Lines(script) {
		line = strings.TrimPrefix(strings.TrimRight(line, "\n"), "\t")
		before, comment, commented := strings.Cut(strings.TrimSpace(line), ` comment "`)
		switch {
		case strings.HasPrefix(line, "# "):
			command, id, _ := strings.Cut(line[2:], " # ")
			id, _, _ = strings.Cut(id, ":")
			r.add(interception.RuleID(id), "", command)
		case strings.HasPrefix(line, "chain "):
			chain = strings.Fields(line)[1]
		case strings.HasPrefix(line, "set "):
			set = interception.RuleID("@" + strings.TrimPrefix(strings.Fields(line)[1], "set-"))
			r.add(set, "", line)
		case set != "":
			r.add(set, "", line)
			if line == "}" {
				set = ""
			}
		case commented:
			r.add(idOf(comment), chain, before)
		}
	}
	return r
}

// readIPTables reads a text for iptables-restore.
func readIPTables(text string) rendered {
	r := newRendered()
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "*") {
			table = line[1:]
		}
		before, comment, ok := strings.Cut(line, ` -m comment --comment "`)
		if !ok {
			continue
		}
		_, verdict, _ := strings.Cut(comment, `"`)
		r.add(idOf(comment), strings.Fields(line)[1], fmt.Sprintf("-t %s %s%s", table, before, verdict))
	}
	return r
}

// idOf returns the id at the beginning of a comment.
func idOf(comment string) interception.RuleID {
	id, _, _ := strings.Cut(comment, " ")
	return interception.RuleID(id)
}
