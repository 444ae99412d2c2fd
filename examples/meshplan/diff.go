// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception"
)

const diffLong = `Diff prints in what the second source differs from the first: each rule that is
missing, moved, changed or extra, with the reason for it.

Ids and reasons are not compared, as a comment can claim anything.
` + podPairHelp

const diffExample = `  # does the running pod have what its annotations ask for?
  meshplan diff pod.yaml pid:4242

  # what does a change of annotations do?
  meshplan diff pod.yaml pod-new.yaml`

func newDiffCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "diff WANTED FOUND",
		Short:   "Compare the rules of two sources",
		Long:    diffLong,
		Example: diffExample,
		Args:    cobra.ExactArgs(2),
	}
	source := addSource(command)
	form := addOutput(command, "lines", "json")
	command.RunE = func(command *cobra.Command, args []string) error {
		want, got, err := source.readBoth(command, args)
		if err != nil {
			return err
		}
		drifts := interception.Diff(want.state.Plan(), got.state)
		if err := writeDrifts(command, drifts, form.value); err != nil {
			return err
		}
		if len(drifts) > 0 {
			return errFindings
		}
		return nil
	}
	return command
}

type driftView struct {
	Kind string `json:"kind"`
	At   string `json:"at"`
	ID   string `json:"id,omitempty"`
	Why  string `json:"why,omitempty"`
	Want string `json:"want,omitempty"`
	Got  string `json:"got,omitempty"`
}

func writeDrifts(command *cobra.Command, drifts []interception.Drift, form string) error {
	views := make([]driftView, len(drifts))
	for i, d := range drifts {
		views[i] = driftView{string(d.Kind), d.At, string(d.ID), d.Why, d.Want, d.Got}
		if form != "lines" {
			continue
		}
		if _, err := fmt.Fprintln(command.OutOrStdout(), d); err != nil {
			return err
		}
	}
	if form == "json" {
		return writeJSON(command.OutOrStdout(), views)
	}
	return nil
}
