// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// answer is what a command has to say about one pod, plan or namespace.
type answer struct {
	// text is for people, and view for programs.
	text string
	view any
	// findings says that it is one for the exit code.
	findings bool
}

// namedView is an answer for programs where there are several.
type namedView struct {
	Name      string `json:"name"`
	LeftAlone string `json:"leftAlone,omitempty"`
	Result    any    `json:"result,omitempty"`
}

// tell prints what there is to say about everything that the argument names. Of several pods each has its name above it, as a
// comment of the form that is printed.
func (s *source) tell(command *cobra.Command, argument string, form *choice, say func(rules) (answer, error)) error {
	all, err := s.read(command, argument)
	if err != nil {
		return err
	}
	var views []namedView
	findings := false
	for i, r := range all {
		several := len(all) > 1
		if r.alone != nil {
			findings = true
			views = append(views, namedView{Name: r.name, LeftAlone: r.alone.decision.String()})
			tellAlone(command, r, several)
			continue
		}
		a, err := say(r)
		if err != nil {
			return fmt.Errorf("%s: %w", argument, err)
		}
		findings = findings || a.findings
		views = append(views, namedView{Name: r.name, Result: a.view})
		if form.value == "json" {
			continue
		}
		if several {
			heading(command, r.name, form.value, i == 0)
		}
		fmt.Fprint(command.OutOrStdout(), a.text)
	}
	if form.value == "json" {
		if err := writeViews(command, views); err != nil {
			return err
		}
	}
	if findings {
		return errFindings
	}
	return nil
}

// tellAlone says that a pod has no rules, which is an answer and no failure.
func tellAlone(command *cobra.Command, r rules, several bool) {
	prefix := ""
	if several {
		prefix = r.name + ": "
	}
	fmt.Fprintf(command.ErrOrStderr(), "%s%v\n", prefix, r.alone)
}

func heading(command *cobra.Command, name, form string, first bool) {
	mark, gap := "#", "\n"
	if form == "mermaid" {
		mark = "%%"
	}
	if first {
		gap = ""
	}
	fmt.Fprintf(command.OutOrStdout(), "%s%s %s\n", gap, mark, name)
}

// writeViews prints the answers for programs: a single one as it is, and several with their names.
func writeViews(command *cobra.Command, views []namedView) error {
	switch {
	case len(views) > 1:
		return writeJSON(command.OutOrStdout(), views)
	case views[0].LeftAlone != "":
		return nil
	default:
		return writeJSON(command.OutOrStdout(), views[0].Result)
	}
}
