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
	exitFailure = 1 // something on the node failed
	// exitUsage: the command line or a setting is wrong, and nothing was done. Commands that use
	// [readLeniently] end so for the command line alone.
	exitUsage = 2
	// exitNotRight: status found something wrong, or install waits for other programs.
	exitNotRight = 3
)

func run(ctx context.Context, env environment) int {
	command := newCommand(env)
	command.SetArgs(append([]string{}, env.args...)) // nil would stand for the process's own
	command.SetOut(env.stdout)
	command.SetErr(env.stderr)
	refuseUnknownShells(command)
	err := command.ExecuteContext(ctx)
	var usage *usageError
	var waiting *waitingError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errNotRight):
		return exitNotRight
	case errors.As(err, &waiting):
		fmt.Fprintf(env.stderr, "install-cni: %v\n", err)
		return exitNotRight
	case errors.As(err, &usage):
		fmt.Fprintf(env.stderr, "install-cni: %v\nRun \"install-cni --help\" for the settings.\n", err)
		return exitUsage
	default:
		fmt.Fprintf(env.stderr, "install-cni: %v\n", err)
		return exitFailure
	}
}

// usageError is an error in the arguments or settings.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

const rootLong = `install-cni puts the istio-cni plugin on this node and keeps it there.

Without a command it runs as the node's daemon: it copies the plugin's binary,
writes the kubeconfig the plugin uses, adds the plugin to the primary CNI
configuration, and restores each of them when another program changes or removes it.
It tells plugins about their pods, takes their log lines, and answers /healthz,
/readyz and /metrics.

When it is stopped, it leaves everything in place, so that an upgrade has no gap,
unless the API server shows that its DaemonSet was deleted. "install-cni
uninstall" or --uninstall-on-exit take everything away.

Every flag can be set by an environment variable: --mounted-cni-net-dir is
MOUNTED_CNI_NET_DIR; and by a file of either name in the settings directory, a
mounted ConfigMap. A flag wins over a file, a file over a variable, and what is
set to nothing counts as set. "install-cni config" shows what came of it.

Exit codes: 0 done or stopped, 1 failure, 2 wrong command line or setting; 3 of
status, install and ambient: something is missing or not as it should be. A bad
setting stops neither "status", "ambient status" nor "ambient withdraw".`

const rootExample = `  # in the DaemonSet, with its usual mounts
  install-cni --log_output_level=info

  # on a k3s node
  install-cni --mounted-cni-net-dir=/host/var/lib/rancher/k3s/agent/etc/cni/net.d \
              --mounted-cni-bin-dir=/host/var/lib/rancher/k3s/data/cni

  # is everything in place?
  curl -f http://localhost:8000/readyz`

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

		SuggestionsMinimumDistance: 2,
		RunE: func(command *cobra.Command, _ []string) error {
			loaded, err := settings.Load(command, env.environ)
			if err != nil {
				return &usageError{err}
			}
			log, level := newLog(env, loaded)
			return runDaemon(command.Context(), env, loaded, log, level)
		},
	}
	settings.AddFlags(root)
	root.AddCommand(newConfigCommand(env), newInstallCommand(env), newStatusCommand(env), newUninstallCommand(env), newRetireCommand(env),
		newAmbientCommand(env))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 110"))
	root.SetVersionTemplate("install-cni {{.Version}}\n")
	return root
}

func noArguments(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if similar := command.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "; did you mean " + strings.Join(similar, ", or ") + "?"
	}
	return &usageError{fmt.Errorf("%q is neither a command nor a flag%s", args[0], hint)}
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
		return &usageError{fmt.Errorf("completion: %q is not a shell that is known here; write one of %s", args[0], strings.Join(shells, ", "))}
	}
}

// newLog opens the log that the settings describe. The returned variable changes its level.
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
		log.Warn("these settings are accepted, but have no effect yet", "settings", s.Ignored)
	}
	if len(loaded.Unknown) > 0 {
		log.Warn("these look like settings, but are unknown", "names", loaded.Unknown)
	}
	return log, level
}
