// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception/proof"
)

const explainLong = `Explain prints who decides about packets, and why: one row for each region of the
packets that a QUERY asks about, read from above like the rules. It looks at every
packet there is, not at samples.

A QUERY is words in any order: in, out, tcp, udp, v4, v6, "port N", "from PREFIX",
"to PREFIX", "uid N", "gid N", "link NAME", and "all" for packets that open no
connection too. N is a number, a range (8440-8450) or a list of both (80,8440-8450).
Without a QUERY, everything is explained.`

const explainExample = `  # why is port 8443 not captured?
  meshplan explain pod.yaml tcp port 8443 in

  # what happens to all that the application sends?
  meshplan explain pod.yaml out uid 1000

  # and in the running pod?
  meshplan explain pid:4242 out uid 1000`

func newExplainCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "explain SOURCE [QUERY]...",
		Short:   "Tell who decides about packets, and why",
		Long:    explainLong,
		Example: explainExample,
		Args:    cobra.MinimumNArgs(1),
	}
	source := addSource(command)
	form := addOutput(command, "table", "json")
	command.RunE = func(command *cobra.Command, args []string) error {
		query, err := proof.ParseQuery(strings.Join(args[1:], " "))
		if err != nil {
			return err
		}
		return source.print(command, args[0], form, func(r rules) (answer, error) {
			explanation, err := proof.Explain(r.state, query, proof.Options{Addresses: r.addresses})
			if err != nil {
				return answer{}, err
			}
			return answer{text: explanation.String(), view: viewExplanation(explanation)}, nil
		})
	}
	return command
}

type regionView struct {
	Direction string     `json:"direction"`
	When      []string   `json:"when"`
	Effect    string     `json:"effect"`
	Rule      *placeView `json:"rule,omitempty"`
	Example   string     `json:"example"`
	Outcome   string     `json:"outcome"`
}

type placeView struct {
	At     string   `json:"at"`
	ID     string   `json:"id"`
	Match  string   `json:"match,omitempty"`
	Action string   `json:"action,omitempty"`
	Why    string   `json:"why,omitempty"`
	From   []string `json:"from,omitempty"`
}

func viewExplanation(x proof.Explanation) []regionView {
	views := make([]regionView, len(x.Regions))
	for i, r := range x.Regions {
		view := regionView{
			Direction: r.Direction.String(), When: append([]string{}, r.Ways()...), Effect: r.Effect.String(),
			Example: r.Example.String(), Outcome: r.Outcome.String(),
		}
		if r.Decides != nil {
			rule := viewPlace(*r.Decides)
			view.Rule = &rule
		}
		views[i] = view
	}
	return views
}

func viewPlace(p proof.Place) placeView {
	view := placeView{At: p.Position.String(), ID: string(p.Rule.ID), Match: p.Rule.Match.String(), Why: p.Rule.Why}
	if p.Rule.Action != nil {
		view.Action = p.Rule.Action.String()
	}
	for _, source := range p.Rule.From {
		view.From = append(view.From, source.String())
	}
	return view
}
