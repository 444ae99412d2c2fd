// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

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
		state, err := source.read(command, args[0])
		if err != nil {
			return leftAlone(command, err)
		}
		findings, err := proof.Lint(state, proof.Options{})
		if err != nil {
			return err
		}
		if err := writeFindings(command, findings, form.value); err != nil {
			return err
		}
		if len(findings) > 0 {
			return errFindings
		}
		return nil
	}
	return command
}

// findingView is a finding for programs.
type findingView struct {
	Kind    string      `json:"kind"`
	Rule    placeView   `json:"rule"`
	Shadows []placeView `json:"shadows"`
}

func writeFindings(command *cobra.Command, findings []proof.Finding, form string) error {
	views := make([]findingView, len(findings))
	for i, f := range findings {
		views[i] = findingView{Kind: string(f.Kind), Rule: viewPlace(f.Place), Shadows: []placeView{}}
		for _, shadow := range f.Shadows {
			views[i].Shadows = append(views[i].Shadows, viewPlace(shadow))
		}
		if form == "lines" {
			fmt.Fprintln(command.OutOrStdout(), f)
		}
	}
	if form == "json" {
		return writeJSON(command.OutOrStdout(), views)
	}
	return nil
}
