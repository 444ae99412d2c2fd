// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

// The program's exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // something on the node didn't work
	exitUsage   = 2 // the command line or a setting is wrong; nothing was done
)

// run is the whole program.
func run(ctx context.Context, env environment) int {
	command := newCommand(env)
	command.SetArgs(append([]string{}, env.args...)) // nil would stand for the process's own
	command.SetOut(env.stdout)
	command.SetErr(env.stderr)
	err := command.ExecuteContext(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(env.stderr, "install-cni: %v\nRun \"install-cni --help\" for the settings.\n", err)
		return exitUsage
	default:
		fmt.Fprintf(env.stderr, "install-cni: %v\n", err)
		return exitFailure
	}
}

// usageError is an error in what the caller said.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

const rootLong = `install-cni puts the istio-cni plugin on this node and keeps it there.

Without a command it runs as the node's daemon: it copies the plugin's binary,
writes the kubeconfig the plugin uses, adds the plugin to the primary CNI
configuration, and restores each of them when somebody changes or removes it.
It answers /healthz and /readyz.

Told to stop, it leaves everything in place, so that an upgrade has no gap;
"install-cni uninstall" or --uninstall-on-exit take it away.

Every flag can be set by an environment variable: --mounted-cni-net-dir is
MOUNTED_CNI_NET_DIR; and by a file of either name in the settings directory, a
mounted ConfigMap. A flag wins over a file, a file over a variable, and what is
set to nothing counts as set. "install-cni config" shows what came of it.

Exit codes: 0 done or told to stop, 1 failure, 2 wrong command line or setting.`

const rootExample = `  # in the DaemonSet, with its usual mounts
  install-cni --log_output_level=info

  # on a k3s node
  install-cni --mounted-cni-net-dir=/host/var/lib/rancher/k3s/agent/etc/cni/net.d \
              --mounted-cni-bin-dir=/host/var/lib/rancher/k3s/data/cni

  # is everything in place?
  curl -f http://localhost:8000/readyz`

const uninstallLong = `Uninstall takes away what the daemon installed, in this order: the plugin's
entry in the CNI configuration, which is then byte for byte what it was (a single
configuration that had been made a list is given back); the kubeconfig; the
binary. Before the last two a note beside the binary says that the plugin was
uninstalled: who is called once more lets the pod pass. The binary stays as long
as running pods need it to be removed, unless --purge is given. If the entry
can't be taken out of a configuration that a runtime loads, all else stays, and
pods go on being captured. It prints what became of each step.

It works in a process of its own, also after a crash, and goes on after a step
that fails. A bad setting that says nothing about where to uninstall draws a
warning. It refuses to work while a daemon runs on the node; with --on-exit it
leaves the work to that daemon, which does it when it is told to stop.`

const uninstallExample = `  # on a node whose DaemonSet has gone
  install-cni uninstall

  # before the DaemonSet is deleted, as in a Helm hook
  install-cni uninstall --on-exit

  # and nothing of it shall stay; pods that were made with the plugin then fail to be removed
  install-cni uninstall --purge`

func newCommand(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "install-cni",
		Short:         "Put the istio-cni plugin on this node and keep it there",
		Long:          rootLong,
		Example:       rootExample,
		Version:       env.version,
		Args:          noArguments,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			loaded, err := settings.Load(command, env.environ)
			if err != nil {
				return &usageError{err}
			}
			log, level := newLog(env, loaded)
			return runDaemon(command.Context(), env, loaded, log, level)
		},
	}
	var purge, onExit bool
	uninstall := &cobra.Command{
		Use:     "uninstall",
		Short:   "Take away what the daemon installed",
		Long:    uninstallLong,
		Example: uninstallExample,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			loaded, warnings, err := settings.LoadForUninstall(command, env.environ)
			if err != nil {
				return &usageError{err}
			}
			log, _ := newLog(env, loaded)
			for _, warning := range warnings {
				log.Warn("a setting that an install would refuse; uninstalling without it", "error", warning)
			}
			return runUninstall(command.Context(), env, loaded.Settings, log, purge, onExit)
		},
	}
	uninstall.Flags().BoolVar(&purge, "purge", false,
		"take away the binaries even if running pods need them to be removed, and the note that the plugin was uninstalled")
	uninstall.Flags().BoolVar(&onExit, "on-exit", false,
		"if a daemon runs on the node, have it uninstall when it is told to stop, and don't wait for that; for Helm's pre-delete hook")
	settings.AddFlags(root)
	root.AddCommand(newConfigCommand(env), uninstall)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 110"))
	root.SetVersionTemplate("install-cni {{.Version}}\n")
	return root
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("%q is neither a command nor a flag", args[0])}
	}
	return nil
}

// newLog opens the log that the settings ask for. Its level may be changed.
func newLog(env environment, loaded settings.Loaded) (*slog.Logger, *slog.LevelVar) {
	s, level := loaded.Settings, new(slog.LevelVar)
	level.Set(s.LogLevel)
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(env.stderr, options)
	if s.LogJSON {
		handler = slog.NewJSONHandler(env.stderr, options)
	}
	log := slog.New(handler)
	if len(s.Ignored) > 0 {
		log.Warn("these settings are accepted, and have no effect yet", "settings", s.Ignored)
	}
	if len(loaded.Unknown) > 0 {
		log.Warn("these look like settings, and are none", "names", loaded.Unknown)
	}
	return log, level
}
