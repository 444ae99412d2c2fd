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

// output is the flag -o: one of the forms that a command can print.
type output struct {
	form  string
	forms []string
}

// addOutput gives the command the flag -o. The first form is the default.
func addOutput(command *cobra.Command, forms ...string) *output {
	o := &output{form: forms[0], forms: forms}
	command.Flags().VarP(o, "output", "o", "form to print: "+strings.Join(forms, ", "))
	err := command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag has just been added
	}
	return o
}

// String, Set and Type make it a pflag.Value.
func (o *output) String() string { return o.form }
func (o *output) Type() string   { return "form" }
func (o *output) Set(form string) error {
	if !slices.Contains(o.forms, form) {
		return fmt.Errorf("there is no such form: use one of %s", strings.Join(o.forms, ", "))
	}
	o.form = form
	return nil
}

// writeJSON prints a value for programs.
func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
