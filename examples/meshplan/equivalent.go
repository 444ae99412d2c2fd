// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception/proof"
)

const equivalentLong = `Equivalent tells whether two sources do the same to every packet there is, however
their rules are written. If not, it prints a packet that ends differently.

"diff" compares rules; this compares what they do. The exit code is 0 for yes, and
1 for no or unknown (a rule of a live namespace could not be decoded).
` + podPairHelp

const equivalentExample = `  # does the running pod do what its annotations ask for?
  meshplan equivalent pod.yaml pid:4242`

func newEquivalentCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "equivalent SOURCE SOURCE",
		Short:   "Tell whether two sources do the same to every packet",
		Long:    equivalentLong,
		Example: equivalentExample,
		Args:    cobra.ExactArgs(2),
	}
	source := addSource(command)
	form := addOutput(command, "text", "json")
	command.RunE = func(command *cobra.Command, args []string) error {
		a, b, err := source.readBoth(command, args)
		if err != nil {
			return err
		}
		addresses := a.addresses // "meshplan trace" accepts the answer's packet for this pod
		if addresses == nil {
			addresses = b.addresses
		}
		comparison, err := proof.Equivalent(a.state, b.state, proof.Options{Addresses: addresses})
		if err != nil {
			return err
		}
		if err := writeComparison(command, comparison, form.value); err != nil {
			return err
		}
		if comparison.Answer != proof.Yes {
			return errFindings
		}
		return nil
	}
	return command
}

type comparisonView struct {
	Answer    string        `json:"answer"`
	Outcomes  []outcomeView `json:"outcomes,omitempty"`
	Undecoded []placeView   `json:"undecoded,omitempty"`
}

func writeComparison(command *cobra.Command, c proof.Comparison, form string) error {
	if form == "text" {
		_, err := fmt.Fprintln(command.OutOrStdout(), c)
		return err
	}
	view := comparisonView{Answer: c.Answer.String()}
	if c.Answer == proof.No {
		view.Outcomes = []outcomeView{viewOutcome(c.Outcomes[0]), viewOutcome(c.Outcomes[1])}
	}
	for _, place := range c.Undecoded {
		view.Undecoded = append(view.Undecoded, viewPlace(place))
	}
	return writeJSON(command.OutOrStdout(), view)
}

const lintLong = `Lint prints the rules that can never match and the chains that no packet reaches,
each with the rules before it that are why.`

const lintExample = `  # is every rule of this plan good for something?
  meshplan lint plan.json`

func newLintCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "lint SOURCE",
		Short:   "Find rules that do nothing",
		Long:    lintLong,
		Example: lintExample,
		Args:    cobra.ExactArgs(1),
	}
	source := addSource(command)
	form := addOutput(command, "lines", "json")
	command.RunE = func(command *cobra.Command, args []string) error {
		return source.print(command, args[0], form, func(r rules) (answer, error) {
			findings, err := proof.Lint(r.state, proof.Options{})
			if err != nil {
				return answer{}, err
			}
			return findingsAnswer(findings), nil
		})
	}
	return command
}

type findingView struct {
	Kind    string      `json:"kind"`
	Rule    placeView   `json:"rule"`
	Shadows []placeView `json:"shadows"`
}

func findingsAnswer(findings []proof.Finding) answer {
	var text strings.Builder
	views := make([]findingView, len(findings))
	for i, f := range findings {
		views[i] = findingView{Kind: string(f.Kind), Rule: viewPlace(f.Place), Shadows: []placeView{}}
		for _, shadow := range f.Shadows {
			views[i].Shadows = append(views[i].Shadows, viewPlace(shadow))
		}
		fmt.Fprintln(&text, f)
	}
	return answer{text: text.String(), view: views, findings: len(findings) > 0}
}
