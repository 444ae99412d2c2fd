// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The program's exit codes, as in diff(1).
const (
	exitOK       = 0
	exitFindings = 1 // the answer is "they differ", "it would not be captured", or the like
	exitTrouble  = 2 // the command line or a source is wrong, or an operation failed
)

// errFindings ends a command that succeeded and printed findings.
var errFindings = errors.New("there are findings")

// errTold ends a command that has already printed its error.
var errTold = errors.New("something went wrong, as was said")

func run(ctx context.Context, env environment) int {
	command := newCommand(env)
	command.SetArgs(append([]string{}, env.args...)) // nil would mean the process's own arguments
	command.SetIn(env.stdin)
	command.SetOut(env.stdout)
	command.SetErr(env.stderr)
	err := command.ExecuteContext(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.Is(err, errTold):
		return exitTrouble
	case errors.As(err, &usage):
		fmt.Fprintf(env.stderr, "meshplan: %v\nRun \"%s --help\" for usage.\n", err, usage.command)
	default:
		fmt.Fprintf(env.stderr, "meshplan: %v\n", err)
	}
	return exitTrouble
}

// usageError is an error in the command line.
type usageError struct {
	err error
	// command is the subcommand whose help explains the syntax.
	command string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

const rootLong = `meshplan shows what meshcni does with a pod's traffic, and why. It changes nothing.

A SOURCE is one of
  pod.yaml     Pods, YAML or JSON, as "kubectl get pod NAME -o yaml" prints them;
               Deployments and all else that has a pod template; Lists of them
  plan.json    a plan, as "meshplan plan -o json" prints it
  -            one of these on the standard input
  pid:4242     the network namespace of a process, as it is now (Linux, root)
  netns:/PATH  the network namespace at a path, as it is now (Linux, root)

Exit codes: 0 done, 1 done and there are findings (they differ, the pod is left
alone), 2 the command line or a source is wrong, or something didn't work.`

func newCommand(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "meshplan",
		Short:         "Show what meshcni does with a pod's traffic, and why",
		Long:          rootLong,
		Version:       env.version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return command.Help()
		},
	}
	root.AddCommand(newPlanCommand(), newTraceCommand(), newExplainCommand(), newDiffCommand(), newEquivalentCommand(), newLintCommand(),
		newVersionCommand(env.version))
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error { return usage(command, err) })
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 110"))
	root.SetVersionTemplate("meshplan {{.Version}}\n")
	return root
}

func newVersionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(0, 0, "none"),
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(command.OutOrStdout(), "meshplan %s\n", version)
			return err
		},
	}
}

func usage(command *cobra.Command, err error) error {
	return &usageError{err: err, command: command.CommandPath()}
}

func noArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(command, fmt.Errorf("%q is no command", args[0]))
	}
	return nil
}

// arguments refuses a command line with fewer or more arguments than the command takes; most is -1
// for no upper bound.
func arguments(least, most int, names string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usage(command, fmt.Errorf("%d arguments given, want %s", len(args), names))
		}
		return nil
	}
}
