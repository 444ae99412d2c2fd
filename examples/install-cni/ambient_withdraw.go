// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

const ambientWithdrawLong = `Withdraw takes a pod out of the mesh, or with --all all pods of this node: their
new connections go direct, those through the proxy may end within drain-timeout,
then the proxy forgets the pod, and its rules go. With --all the host's rules go, too,
and pods that start later are not enrolled. With ambient-mode=node, the connections of
one pod go on to their end. POD is NAMESPACE/NAME, or a UID.

The pods stay out until "ambient withdraw --undo", or the agent's next start; to
keep one out for good, label it istio.io/dataplane-mode=none. If the time is over, the
command names what is left, and the agent goes on with it.

A bad value in the settings directory or the environment keeps no pod in the mesh: it is
refused with a warning, and the value with which the daemon works is used, or the
default.

Exit codes: 0 the pods are out, 1 the agent cannot be asked or fails, 2 wrong command
line, 3 pods are left.`

const ambientWithdrawExample = `  # this pod must bypass the proxy now
  install-cni ambient withdraw shop/web-0

  # before ambient mode is uninstalled by hand
  install-cni ambient withdraw --all --timeout=2m

  # and in again
  install-cni ambient withdraw --undo`

// withdrawFlags are those of the command.
type withdrawFlags struct {
	all, undo bool
	timeout   time.Duration
}

func newAmbientWithdrawCommand(env environment) *cobra.Command {
	var flags withdrawFlags
	command := &cobra.Command{
		Use:               "withdraw [POD]",
		Short:             "Take pods out of the mesh, with their connections drained",
		Long:              ambientWithdrawLong,
		Example:           ambientWithdrawExample,
		ValidArgsFunction: completePods(env),
		Args:              cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, args []string) error {
			format, loaded, _, err := readLeniently(command, env)
			if err != nil {
				return err
			}
			of, err := onePod(args)
			if err == nil {
				err = flags.check(of)
			}
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), flags.timeout)
			defer cancel()
			if flags.undo {
				err := hintAgent(event.Readmit(ctx, loaded.Settings.EventSocket()))
				if err == nil && format == formatTable {
					fmt.Fprintln(env.stdout, "done: the agent enrols the pods again")
				}
				return err
			}
			return withdrawPods(ctx, env, format, loaded.Settings.EventSocket(), of)
		},
	}
	command.Flags().BoolVar(&flags.all, "all", false, "all pods of this node, and the rules on the host")
	command.Flags().BoolVar(&flags.undo, "undo", false, "end all withdrawals: the pods are enrolled again")
	command.Flags().DurationVar(&flags.timeout, "timeout", time.Minute, "how long to wait; longer than drain-timeout")
	addOutputFlag(command)
	return command
}

// check refuses a command that does not say exactly what is meant.
func (f withdrawFlags) check(of event.Selection) error {
	said := 0
	for _, is := range []bool{f.all, f.undo, of != event.Selection{}} {
		if is {
			said++
		}
	}
	switch {
	case said != 1:
		return &usageError{errors.New("name one pod, or --all, or --undo")}
	case f.timeout <= 0:
		return &usageError{fmt.Errorf("--timeout is %s: give a time above zero", f.timeout)}
	}
	return nil
}

// withdrawalReport is what the command did, as JSON.
type withdrawalReport struct {
	Out  []event.PodState `json:"out"`
	Left []event.PodState `json:"left,omitempty"`
	// Error is empty if all pods are out.
	Error string `json:"error,omitempty"`
}

func withdrawPods(ctx context.Context, env environment, format, socket string, of event.Selection) error {
	report := withdrawalReport{Out: []event.PodState{}}
	left, err := event.Withdraw(ctx, socket, of, func(pod event.PodState) {
		report.Out = append(report.Out, pod)
		if format == formatTable {
			fmt.Fprintf(env.stdout, "out   %s\n", pod)
		}
	})
	err = hintAgent(err)
	if report.Left = left; format == formatJSON {
		if err != nil {
			report.Error = err.Error()
		}
		if printErr := printJSON(env.stdout, report); printErr != nil {
			return printErr
		}
	} else {
		for _, pod := range left {
			fmt.Fprintf(env.stdout, "left  %s: step %q since %s %s\n", pod, pod.Step, sinceText(pod.Since), pod.Error)
		}
		if err == nil {
			fmt.Fprintf(env.stdout, "done: %d pods are out of the mesh\n", len(report.Out))
		}
	}
	if own, is := errors.AsType[*event.Error](err); is && own.Code == event.CodeUnfinished {
		fmt.Fprintf(env.stderr, "install-cni: %v\n", err)
		return errNotRight
	}
	return err
}
