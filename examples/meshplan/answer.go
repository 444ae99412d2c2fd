// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// answer is a command's result for one pod, plan or namespace.
type answer struct {
	// text is for people, and view for programs.
	text string
	view any
	// findings is true if the result needs the exit code for findings.
	findings bool
	// silent omits the pod from the text for people.
	silent bool
}

// namedView is an answer for programs, if there are several.
type namedView struct {
	Name      string `json:"name"`
	LeftAlone string `json:"leftAlone,omitempty"`
	Error     string `json:"error,omitempty"`
	Result    any    `json:"result,omitempty"`
}

// print prints the answers about everything that the argument names. If there are several pods,
// each pod's name is printed above its answer, as a comment in the printed form. An error of one
// pod hides no other pod.
func (s *source) print(command *cobra.Command, argument string, form *choice, say func(rules) (answer, error)) error {
	all, err := s.read(command, argument, "", selection{names: s.pods})
	if err != nil {
		return err
	}
	t := printer{stdout: command.OutOrStdout(), stderr: command.ErrOrStderr(), argument: argument, form: form.value}
	for _, r := range all {
		if err := t.print(r, say); err != nil {
			return err
		}
	}
	return t.end()
}

type printer struct {
	stdout, stderr io.Writer
	argument, form string

	views            []namedView
	findings, failed bool
	shown            bool // whether the standard output has any text
}

func (t *printer) print(r rules, say func(rules) (answer, error)) error {
	if r.alone != nil {
		t.printAlone(r)
		return nil
	}
	var a answer
	err := r.err
	if err == nil {
		a, err = say(r)
	}
	switch {
	case err != nil && !r.several:
		return fmt.Errorf("%s: %w", t.argument, err)
	case err != nil:
		fmt.Fprintf(t.stderr, "meshplan: %s: %s: %v\n", t.argument, r.name, err)
		t.failed = true
		t.views = append(t.views, namedView{Name: r.name, Error: err.Error()})
		return nil
	}
	t.findings = t.findings || a.findings
	t.views = append(t.views, namedView{Name: r.name, Result: a.view})
	if t.form == "json" || a.silent {
		return nil
	}
	text := a.text
	if r.several {
		text = t.heading(r.name) + text
	}
	t.shown = true
	_, err = io.WriteString(t.stdout, text)
	return err
}

// printAlone prints that a pod has no rules, which is an answer and not a failure.
func (t *printer) printAlone(r rules) {
	prefix := ""
	if r.several {
		prefix = r.name + ": "
	}
	t.findings = true
	t.views = append(t.views, namedView{Name: r.name, LeftAlone: r.alone.decision.String()})
	fmt.Fprintf(t.stderr, "%s%v\n", prefix, r.alone)
}

func (t *printer) heading(name string) string {
	mark, gap := "#", "\n"
	if t.form == "mermaid" {
		mark = "%%"
	}
	if !t.shown {
		gap = ""
	}
	return fmt.Sprintf("%s%s %s\n", gap, mark, name)
}

// end prints the answers for programs: a single result as it is; several, and an answer without a
// result, with their names.
func (t *printer) end() error {
	if t.form == "json" {
		var view any = t.views
		if len(t.views) == 1 {
			view = t.views[0]
			if result := t.views[0].Result; result != nil {
				view = result
			}
		}
		if err := writeJSON(t.stdout, view); err != nil {
			return err
		}
	}
	switch {
	case t.failed:
		return errTold
	case t.findings:
		return errFindings
	}
	return nil
}

// choice is a flag that takes one of a few values.
type choice struct {
	value  string
	values []string
}

// newChoice returns a choice with the first value as its default.
func newChoice(values ...string) choice { return choice{values[0], values} }

// add adds the flag to the command, with shell completion of its values.
func (c *choice) add(command *cobra.Command, name, shorthand, usage string) {
	command.Flags().VarP(c, name, shorthand, usage)
	if err := command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag has just been added
	}
}

// String, Set and Type make it a pflag.Value.
func (c *choice) String() string { return c.value }

func (c *choice) Type() string { return "word" }

func (c *choice) Set(value string) error {
	if !slices.Contains(c.values, value) {
		return fmt.Errorf("use one of %s", strings.Join(c.values, ", "))
	}
	c.value = value
	return nil
}

// addOutput adds the flag -o to the command: the form to print in.
func addOutput(command *cobra.Command, forms ...string) *choice {
	c := newChoice(forms...)
	c.add(command, "output", "o", "form to print: "+strings.Join(forms, ", "))
	return &c
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
