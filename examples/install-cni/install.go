// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

const installLong = `Install does once what the daemon does all the time: it copies the binaries,
writes the plugin's kubeconfig, and adds the plugin to the CNI configuration.
Then it ends, and no daemon restores them. Without a CNI configuration to add the
plugin to it doesn't wait.

With --dry-run it says what it would do, and changes nothing.

Exit codes: 0 all is in place (with --dry-run: reported), 1 failure, 2 wrong
command line or setting, 3 another program has to install something first.`

const installExample = `  # what would the daemon do on this node?
  install-cni install --dry-run

  # in an image of a node, before it has a cluster
  install-cni install --cni-conf-name=10-calico.conflist`

func newInstallCommand(env environment) *cobra.Command {
	dry := false
	command := &cobra.Command{
		Use:     "install",
		Short:   "Install once, without a daemon",
		Long:    installLong,
		Example: installExample,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			format, loaded, err := readCommand(command, env)
			if err != nil {
				return err
			}
			if dry {
				report, err := inspect(command, env, loaded.Settings)
				if err != nil {
					return err
				}
				return printSteps(env, format, stepsReport{DryRun: true, Steps: wouldDo(report.Findings)})
			}
			log, _ := newLog(env, loaded)
			return withSteps(env, format, log, func(log *slog.Logger) error { return installOnce(command.Context(), env, loaded.Settings, log) })
		},
	}
	command.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and change nothing")
	addOutputFlag(command)
	return command
}

// wouldDo returns the steps of an install, given the findings.
func wouldDo(findings []installer.Finding) []step {
	steps := []step{}
	for _, f := range findings {
		s := step{File: f.Path, Reason: f.Reason}
		switch f.State {
		case installer.StateOK:
			continue
		case installer.StateMissing:
			s.Step = "write"
		case installer.StateDiffers:
			s.Step = "write anew"
			if f.Part == "marker" {
				s.Step = "remove"
			}
		case installer.StateWaiting:
			s.Step = "wait"
		case installer.StateFailed:
			s.Step = "fail"
		}
		steps = append(steps, s)
	}
	return steps
}

// installOnce installs; its error names the setting that fixes the cause.
func installOnce(ctx context.Context, env environment, s settings.Settings, log *slog.Logger) error {
	node, err := env.installer(log, s)
	if err != nil {
		return &usageError{err}
	}
	err = hint(node.Install(env.watched(ctx)), s)
	switch {
	case errors.Is(err, installer.ErrWaiting):
		return &waitingError{err}
	case err != nil:
		return fmt.Errorf("install: %w", err)
	}
	return nil
}

// waitingError is for what other programs must install first.
type waitingError struct{ error }

func (e *waitingError) Unwrap() error { return e.error }
