// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

const configLong = `Config prints the value of every setting and where it comes from: a flag, a file in
the settings directory, an environment variable, or the default. It changes
nothing.

It answers for its own command line and environment: in the daemon's container,
"kubectl exec" gives it the daemon's environment, but not the daemon's flags.
With --running it answers for the daemon, from what that wrote to the run directory:
also which new values wait for the next start, and which were refused and why.

Exit codes: 0 all settings are good, 2 some are not; they are named.`

const configExample = `  # what would the daemon do with this environment?
  kubectl exec -n istio-system istio-cni-node-x7k2p -- install-cni config

  # what does the daemon work with, and did it take the new ConfigMap?
  kubectl exec -n istio-system istio-cni-node-x7k2p -- install-cni config --running

  # which settings were given at all?
  install-cni config -o json | jq '.settings[] | select(.source.kind != "default")'`

// formats are the values of --output.
const (
	formatTable = "table"
	formatJSON  = "json"
)

// addOutputFlag gives a command the flag --output, whose value [outputFormat] checks.
func addOutputFlag(command *cobra.Command) {
	command.Flags().StringP("output", "o", formatTable, "how to print: table, for people, or json")
	complete := cobra.FixedCompletions([]string{formatTable, formatJSON}, cobra.ShellCompDirectiveNoFileComp)
	if err := command.RegisterFlagCompletionFunc("output", complete); err != nil {
		panic(err) // the flag exists
	}
}

func outputFormat(command *cobra.Command) (string, error) {
	format := command.Flag("output").Value.String()
	if format != formatTable && format != formatJSON {
		return "", &usageError{fmt.Errorf("--output is %q; write table or json", format)}
	}
	return format, nil
}

// readLeniently reads the output format and the settings of a command that must work while the
// daemon does: standard error names the values that are refused, as the daemon refuses them, and
// only the command line must be right. The last result reports whether anything is refused.
func readLeniently(command *cobra.Command, env environment) (format string, loaded settings.Loaded, refused bool, err error) {
	if format, err = outputFormat(command); err != nil {
		return "", settings.Loaded{}, false, err
	}
	loaded, warnings, err := settings.LoadLeniently(command, env.environ)
	if err != nil {
		return "", settings.Loaded{}, false, &usageError{err}
	}
	for _, warning := range warnings {
		fmt.Fprintf(env.stderr, "install-cni: refused: %v\n", warning)
	}
	return format, loaded, len(warnings) > 0, nil
}

// readCommand reads the output format and the settings of a command, which must all be valid.
func readCommand(command *cobra.Command, env environment) (format string, loaded settings.Loaded, err error) {
	if format, err = outputFormat(command); err != nil {
		return "", settings.Loaded{}, err
	}
	if loaded, err = settings.Load(command, env.environ); err != nil {
		return "", settings.Loaded{}, &usageError{err}
	}
	return format, loaded, nil
}

func newConfigCommand(env environment) *cobra.Command {
	running := false
	command := &cobra.Command{
		Use:     "config",
		Short:   "Print the settings and where each comes from",
		Long:    configLong,
		Example: configExample,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			format, err := outputFormat(command)
			if err != nil {
				return err
			}
			report, problem, err := configReport(command, env, running)
			if err != nil {
				return err
			}
			if err := printSettings(env.stdout, format, report); err != nil {
				return err
			}
			for _, name := range report.Unknown {
				fmt.Fprintf(env.stderr, "install-cni: %s looks like a setting, but is unknown\n", name)
			}
			if problem != nil {
				return &usageError{problem}
			}
			return nil
		},
	}
	command.Flags().BoolVar(&running, "running", false, "what the daemon on this node works with, and which new values wait or are refused")
	addOutputFlag(command)
	return command
}

// configReport returns the settings of the command itself, or those of the running daemon, and what
// is wrong with them.
func configReport(command *cobra.Command, env environment, running bool) (report settings.Report, problem, err error) {
	if !running {
		loaded, problem := settings.Load(command, env.environ)
		return loaded.Report(), problem, nil
	}
	loaded, _, err := settings.LoadLeniently(command, env.environ)
	if err != nil {
		return report, nil, &usageError{err}
	}
	if report, err = settings.Recorded(loaded.Settings.RunDir); err != nil {
		return report, nil, fmt.Errorf("what the running daemon works with: %w; the daemon writes it to cni-agent-run-dir", err)
	}
	var refused []error
	for _, value := range report.Refused() {
		refused = append(refused, errors.New(value.Offer.Error))
	}
	return report, errors.Join(refused...), nil
}

func printSettings(to io.Writer, format string, report settings.Report) error {
	if format == formatJSON {
		return printJSON(to, report)
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")
	for _, r := range report.Settings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Name, shown(r.Value), note(r))
	}
	return table.Flush()
}

// note returns where a value comes from, and what else matters about it.
func note(r settings.ReportedValue) string {
	text := r.Source.String()
	if r.Error != "" {
		text += ", which is wrong"
	}
	if r.Offer == nil {
		return text
	}
	if r.Offer.Error != "" {
		return text + "; refused: " + shown(r.Offer.Value) + " from " + r.Offer.Source.String()
	}
	return text + "; with the next start: " + shown(r.Offer.Value) + " from " + r.Offer.Source.String()
}

// shown returns a value on one line, quoted if it is empty or unclear.
func shown(value string) string {
	if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == '"' }) {
		return strconv.Quote(value)
	}
	return value
}

func printJSON(to io.Writer, value any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
