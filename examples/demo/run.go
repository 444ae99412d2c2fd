// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// The program's exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // a result was not as expected, or a step failed
	exitUsage   = 2 // the command line or the pod is wrong; nothing was done
)

// stageRehearsal is the stage that only tries the sandbox, before anything is built.
const stageRehearsal = "rehearsal"

// run is the whole program. It runs in several processes: outside, where it builds; inside the
// sandbox, where the stage is the directory with the built programs; and, in the sandbox, once for
// each program of the pod.
func run(ctx context.Context, env environment) int {
	if len(env.args) > 0 && env.args[0] == workloadCommand {
		return runWorkload(ctx, env)
	}
	options, err := parseOptions(env.args, env.getenv)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(env.stdout, usage)
		return exitOK
	}
	var pod podManifest
	if err == nil {
		pod, err = readPod(options.podPath)
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "demo: %v\nRun it with --help to see what it takes.\n", err)
		return exitUsage
	}
	progress := progress{env.stdout}
	if stage := env.getenv(stageVariable); stage != "" {
		return runInside(ctx, env, progress, pod, stage)
	}
	return runOutside(ctx, env, options, progress, pod)
}

// runOutside prepares a directory with all that is needed, runs the demonstration inside the
// sandbox, and tidies up.
func runOutside(ctx context.Context, env environment, options options, progress progress, pod podManifest) int {
	ctx = env.untilSignal(ctx)
	fail := func(err error) int {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintf(env.stderr, "\ndemo: %v\n", err)
		return exitFailure
	}
	// The rehearsal shows at once whether the system allows a sandbox; building may take a minute.
	if _, err := env.enter(ctx, stageRehearsal); err != nil {
		return fail(err)
	}
	directory, err := os.MkdirTemp("", "meshcni-demo-")
	if err != nil {
		return fail(err)
	}
	node := nodeIn(directory)
	code := exitFailure
	if err := prepare(ctx, options, progress, node); err != nil {
		fail(err)
	} else if info, err := env.enter(ctx, directory); err != nil {
		fail(err)
	} else if code = info.ExitCode; info.Inside { // this process is inside a ready-made sandbox
		code = demonstrate(ctx, env, progress, pod, info, node)
	}
	if err := tidy(ctx, env, options, node, code); err != nil {
		return fail(err)
	}
	return code
}

// prepare makes the node's directories and fills them with the node's initial files.
func prepare(ctx context.Context, options options, progress progress, node node) error {
	progress.heading("Outside")
	if err := node.make(); err != nil {
		return err
	}
	if options.binaries != "" {
		return progress.step("take the binaries from "+options.binaries, func() (string, error) {
			return "", node.provision(options.binaries)
		})
	}
	return progress.step("build install-cni, istio-cni, node-ambient, and CNI's network plugins", func() (string, error) {
		if err := node.build(ctx, node.builtDir()); err != nil {
			return "", err
		}
		return "", node.provision(node.builtDir())
	})
}

// tidy removes the directory. After a failure, other than an interrupt, it keeps the logs.
func tidy(ctx context.Context, env environment, options options, node node, code int) error {
	if options.keep {
		fmt.Fprintf(env.stdout, "\nEverything is kept in %s\n", node.directory)
		return nil
	}
	if code == exitOK || ctx.Err() != nil || !node.hasLogs() {
		return os.RemoveAll(node.directory)
	}
	fmt.Fprintf(env.stderr, "demo: the logs are in %s\n", node.logs())
	return removeAllBut(node.directory, filepath.Base(node.logs()))
}

func removeAllBut(directory, kept string) error {
	entries, err := os.ReadDir(directory)
	for _, entry := range entries {
		if entry.Name() != kept {
			err = errors.Join(err, os.RemoveAll(filepath.Join(directory, entry.Name())))
		}
	}
	return err
}

// runInside runs the demonstration or, in the sandbox's first process, what the sandbox needs.
func runInside(ctx context.Context, env environment, progress progress, pod podManifest, stage string) int {
	info, err := env.enter(ctx, stage)
	switch {
	case err != nil:
		fmt.Fprintf(env.stderr, "demo: %v\n", err)
		return exitFailure
	case !info.Inside:
		return info.ExitCode
	case stage == stageRehearsal:
		return exitOK
	}
	return demonstrate(env.untilSignal(ctx), env, progress, pod, info, nodeIn(stage))
}

func situation(info sandbox.Info) string {
	switch {
	case info.Root:
		return "started as root: every user id exists"
	case info.SingleID:
		return "started as an ordinary user with a single id"
	default:
		return "started as an ordinary user with subordinate ids"
	}
}
