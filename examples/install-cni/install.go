// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/examples/install-cni/internal/daemon"
	"github.com/meshcni/meshcni/examples/install-cni/internal/installer"
	"github.com/meshcni/meshcni/internal/upkeep"
)

const installLong = `Install does once what the daemon does all the time: it copies the binaries,
writes the plugin's kubeconfig, and adds the plugin to the CNI configuration.
Then it ends, and nothing looks after them. Without a CNI configuration to add the
plugin to it doesn't wait.

With --dry-run it says what it would do, and changes nothing.

Exit codes: 0 all is in place (with --dry-run: was told), 1 failure, 2 wrong
command line or setting, 3 something has to be brought by others first.`

const installExample = `  # what would the daemon do on this node?
  install-cni install --dry-run

  # in an image of a node, before it has a cluster
  install-cni install --cni-conf-name=10-calico.conflist`

func newInstallCommand(env environment) *cobra.Command {
	dry := false
	command := &cobra.Command{
		Use:     "install",
		Short:   "Install once, and look after nothing",
		Long:    installLong,
		Example: installExample,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			format, loaded, err := readCommand(command, env)
			if err != nil {
				return err
			}
			if dry {
				return printWouldInstall(env, format, inspect(command, env, loaded.Settings).Findings)
			}
			log, _ := newLog(env, loaded)
			return withSteps(env, format, log, func(log *slog.Logger) error {
				return installOnce(command.Context(), installer.New(loaded.Settings, env.installer(log, loaded.Settings)))
			})
		},
	}
	command.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and change nothing")
	addOutputFlag(command)
	return command
}

// wouldDo are the steps of an install, by what was found.
func wouldDo(findings []installer.Finding) []step {
	steps := []step{}
	for _, f := range findings {
		switch f.State {
		case installer.StateOK:
		case installer.StateMissing:
			steps = append(steps, step{Step: "write", File: f.Path, Reason: f.Reason})
		case installer.StateDiffers:
			steps = append(steps, step{Step: "write anew", File: f.Path, Reason: f.Reason})
			if f.Part == "marker" {
				steps[len(steps)-1].Step = "remove"
			}
		case installer.StateWaiting:
			steps = append(steps, step{Step: "wait", File: f.Path, Reason: f.Reason})
		case installer.StateFailed:
			steps = append(steps, step{Step: "fail", File: f.Path, Reason: f.Reason})
		}
	}
	return steps
}

func printWouldInstall(env environment, format string, findings []installer.Finding) error {
	return printSteps(env, format, stepsReport{DryRun: true, Steps: wouldDo(findings)})
}

// mostPasses bounds how often install looks again because it changed something.
const mostPasses = 10

// installOnce runs each part until it has nothing more to do.
func installOnce(ctx context.Context, node *installer.Installer) error {
	release, err := node.Attend(ctx)
	if err != nil {
		return err
	}
	defer release()
	parts := []daemon.Part{node.Binaries(), node.Kubeconfig(), node.Config()}
	for range mostPasses {
		again := false
		for _, part := range parts {
			outcome, err := part.Ensure(ctx)
			switch {
			case errors.Is(err, installer.ErrWaiting):
				return &waitingError{err}
			case err != nil:
				return fmt.Errorf("install: %s: %w", part.Name(), err)
			}
			again = again || outcome != upkeep.Right
		}
		if !again {
			return nil
		}
	}
	return errors.New("install: somebody else keeps changing the same files; find out who")
}

// waitingError is for what others have to bring first.
type waitingError struct{ error }

// Unwrap gives the reason.
func (e *waitingError) Unwrap() error { return e.error }
