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

// answer is what a command has to say about one pod, plan or namespace.
type answer struct {
	// text is for people, and view for programs.
	text string
	view any
	// findings says that it is one for the exit code.
	findings bool
	// silent leaves the pod out of what people read.
	silent bool
}

// namedView is an answer for programs where there are several.
type namedView struct {
	Name      string `json:"name"`
	LeftAlone string `json:"leftAlone,omitempty"`
	Error     string `json:"error,omitempty"`
	Result    any    `json:"result,omitempty"`
}

// tell prints what there is to say about everything that the argument names. Of several pods each has its name above it, as a
// comment of the form that is printed; an error of one of them hides no other.
func (s *source) tell(command *cobra.Command, argument string, form *choice, say func(rules) (answer, error)) error {
	all, err := s.read(command, argument, "", selection{names: s.pods})
	if err != nil {
		return err
	}
	t := teller{stdout: command.OutOrStdout(), stderr: command.ErrOrStderr(), argument: argument, form: form.value}
	for _, r := range all {
		if err := t.tell(r, say); err != nil {
			return err
		}
	}
	return t.end()
}

// teller prints answers.
type teller struct {
	stdout, stderr io.Writer
	argument, form string

	views            []namedView
	findings, failed bool
	shown            bool // something on the standard output
}

// tell prints the answer about one pod.
func (t *teller) tell(r rules, say func(rules) (answer, error)) error {
	if r.alone != nil {
		t.tellAlone(r)
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

// tellAlone says that a pod has no rules, which is an answer and no failure.
func (t *teller) tellAlone(r rules) {
	prefix := ""
	if r.several {
		prefix = r.name + ": "
	}
	t.findings = true
	t.views = append(t.views, namedView{Name: r.name, LeftAlone: r.alone.decision.String()})
	fmt.Fprintf(t.stderr, "%s%v\n", prefix, r.alone)
}

func (t *teller) heading(name string) string {
	mark, gap := "#", "\n"
	if t.form == "mermaid" {
		mark = "%%"
	}
	if !t.shown {
		gap = ""
	}
	return fmt.Sprintf("%s%s %s\n", gap, mark, name)
}

// end prints the answers for programs: a single one as it is, one without a result and several with their names.
func (t *teller) end() error {
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

// choice is a flag with a value out of a few.
type choice struct {
	value  string
	values []string
}

// newChoice makes a choice of which the first value is the default.
func newChoice(values ...string) choice { return choice{values[0], values} }

// add gives the command the flag, and has a shell complete its values.
func (c *choice) add(command *cobra.Command, name, shorthand, usage string) {
	command.Flags().VarP(c, name, shorthand, usage)
	if err := command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag has just been added
	}
}

// String, Set and Type make it a pflag.Value.
func (c *choice) String() string { return c.value }

// Type is what the help calls the value.
func (c *choice) Type() string { return "word" }

// Set takes one of the values.
func (c *choice) Set(value string) error {
	if !slices.Contains(c.values, value) {
		return fmt.Errorf("use one of %s", strings.Join(c.values, ", "))
	}
	c.value = value
	return nil
}

// addOutput gives the command the flag -o: the form to print in.
func addOutput(command *cobra.Command, forms ...string) *choice {
	c := newChoice(forms...)
	c.add(command, "output", "o", "form to print: "+strings.Join(forms, ", "))
	return &c
}

// writeJSON prints a value for programs.
func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
