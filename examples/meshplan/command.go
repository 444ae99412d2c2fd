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
var errTold = errors.New("something went wrong, as printed above")

func run(ctx context.Context, env environment) int {
	root := newCommand(env)
	root.SetArgs(append([]string{}, env.args...)) // nil would mean the process's own arguments
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	refuseUnknownShells(root)
	parsed := false
	root.PersistentPreRun = func(*cobra.Command, []string) { parsed = true }
	command, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFindings):
		return exitFindings
	case !errors.Is(err, errTold):
		fmt.Fprintf(env.stderr, "meshplan: %v\n", err)
	}
	if !parsed {
		fmt.Fprintf(env.stderr, "Run \"%s --help\" for usage.\n", command.CommandPath())
	}
	return exitTrouble
}

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
	}
	root.AddCommand(newPlanCommand(), newTraceCommand(), newExplainCommand(), newDiffCommand(), newEquivalentCommand(), newLintCommand())
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 110"))
	root.SetVersionTemplate("meshplan {{.Version}}\n")
	return root
}

// refuseUnknownShells makes the completion command, which cobra makes otherwise, and which would
// print its help for a shell that it does not know. The command's output must be set already.
func refuseUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // it was made above
	}
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = func(command *cobra.Command, args []string) error {
		if len(args) == 0 {
			return command.Help()
		}
		var shells []string
		for _, shell := range command.Commands() {
			shells = append(shells, shell.Name())
		}
		return fmt.Errorf("%q is not a shell that is known here; write one of %s", args[0], strings.Join(shells, ", "))
	}
}
