// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception/proof"
)

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
		Args:    arguments(1, 1, "one SOURCE"),
	}
	source := addSource(command)
	form := addOutput(command, "lines", "json")
	command.RunE = func(command *cobra.Command, args []string) error {
		return source.tell(command, args[0], form, func(r rules) (answer, error) {
			findings, err := proof.Lint(r.state, proof.Options{})
			if err != nil {
				return answer{}, err
			}
			return tellFindings(findings), nil
		})
	}
	return command
}

// findingView is a finding for programs.
type findingView struct {
	Kind    string      `json:"kind"`
	Rule    placeView   `json:"rule"`
	Shadows []placeView `json:"shadows"`
}

func tellFindings(findings []proof.Finding) answer {
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
