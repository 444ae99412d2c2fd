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
