// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

const ambientLong = `The commands of ambient mode ask the node's agent (node-ambient), at the socket
pluginevent.sock in cni-agent-run-dir, or look at the node before it has one.`

func newAmbientCommand(env environment) *cobra.Command {
	command := &cobra.Command{
		Use:   "ambient",
		Short: "Look at ambient mode on this node, and take pods out of the mesh",
		Long:  ambientLong,
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			return &usageError{errors.New(`"ambient" needs a command: status, withdraw or preflight`)}
		},
	}
	command.AddCommand(newAmbientStatusCommand(env), newAmbientWithdrawCommand(env), newAmbientPreflightCommand(env))
	return command
}

// askTime bounds a question to the agent, which answers from its memory.
const askTime = 10 * time.Second

// hintAgent adds to an error of the agent's socket what the user can do.
func hintAgent(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: is ambient-enabled set, and cni-agent-run-dir the daemon's?", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: node-ambient does not run: see the daemon's log", err)
	}
	return err
}

// onePod reads the argument of a command: a pod's namespace/name, or its UID.
func onePod(args []string) (event.Selection, error) {
	switch len(args) {
	case 0:
		return event.Selection{}, nil
	case 1:
	default:
		return event.Selection{}, &usageError{fmt.Errorf("%q are %d arguments: name one pod", args, len(args))}
	}
	namespace, name, named := strings.Cut(args[0], "/")
	switch {
	case args[0] == "", named && (namespace == "" || name == "" || strings.Contains(name, "/")):
		return event.Selection{}, &usageError{fmt.Errorf("%q is no pod: write NAMESPACE/NAME, or a UID", args[0])}
	case named:
		return event.Selection{Namespace: namespace, Name: name}, nil
	}
	return event.Selection{UID: args[0]}, nil
}

// completePods completes the names of the pods that the agent knows.
func completePods(env environment) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		loaded, _, err := settings.LoadLeniently(command, env.environ)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(command.Context(), time.Second)
		defer cancel()
		node, err := event.Pods(ctx, loaded.Settings.EventSocket(), event.Selection{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, pod := range node.Pods {
			names = append(names, pod.String())
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
