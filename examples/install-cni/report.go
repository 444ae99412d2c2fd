// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"text/tabwriter"
)

// step is one thing that was done, or would be.
type step struct {
	// Step is the log's message or, in a dry run, "write", "write anew", "edit", "remove", "wait",
	// "fail" or "keep".
	Step   string `json:"step"`
	File   string `json:"file,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Outcome is the result of a step of an uninstall: one of [installer.Outcome].
	Outcome string `json:"outcome,omitempty"`
}

// stepsReport is what a command did, as JSON.
type stepsReport struct {
	DryRun bool   `json:"dryRun,omitempty"`
	Steps  []step `json:"steps"`
	// Error is empty after success.
	Error string `json:"error,omitempty"`
}

// withSteps runs a command that logs what it does. With JSON output, each line of its log becomes a
// step, and is not logged.
func withSteps(env environment, format string, log *slog.Logger, run func(*slog.Logger) error) error {
	if format != formatJSON {
		return run(log)
	}
	taken := &stepTaker{steps: &[]step{}}
	err := run(slog.New(taken))
	return printOutcome(env, stepsReport{Steps: *taken.steps}, err)
}

// printOutcome prints the report of a command that ended with an error or nil, and returns the
// error.
func printOutcome(env environment, report stepsReport, err error) error {
	report.Error = ""
	if err != nil {
		report.Error = err.Error()
	}
	if printErr := printJSON(env.stdout, report); printErr != nil {
		return printErr
	}
	return err
}

// stepTaker is a log handler that keeps lines as steps.
type stepTaker struct{ steps *[]step }

// Enabled reports whether the level is above debug.
func (t *stepTaker) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (t *stepTaker) Handle(_ context.Context, record slog.Record) error {
	s := step{Step: record.Message}
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "file":
			s.File = a.Value.String()
		default:
			if s.Reason != "" {
				s.Reason += ", "
			}
			s.Reason += a.Key + " " + a.Value.String()
		}
		return true
	})
	*t.steps = append(*t.steps, s)
	return nil
}

// WithAttrs returns the same handler: attributes of all lines are not about a step.
func (t *stepTaker) WithAttrs([]slog.Attr) slog.Handler { return t }

func (t *stepTaker) WithGroup(string) slog.Handler { return t }

func printSteps(env environment, format string, report stepsReport) error {
	if format == formatJSON {
		return printJSON(env.stdout, report)
	}
	if len(report.Steps) == 0 {
		fmt.Fprintln(env.stdout, "nothing to do")
		return nil
	}
	table := tabwriter.NewWriter(env.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WOULD\tFILE\tBECAUSE")
	for _, s := range report.Steps {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Step, s.File, s.Reason)
	}
	return table.Flush()
}
