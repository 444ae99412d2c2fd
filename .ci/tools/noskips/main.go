// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: it takes go test's arguments and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	report := newReport(stdout)
	if err := goTest(ctx, args, report, stderr); err != nil {
		report.failure("go test: " + err.Error())
	}
	if !report.close() {
		return 1
	}
	return 0
}

// goTest runs go test and feeds the report. Failed tests are in the report, not in the error.
func goTest(ctx context.Context, args []string, report *report, stderr io.Writer) error {
	command := exec.CommandContext(ctx, "go", arguments(args)...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.Stderr = stderr
	stream, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	readErr := report.read(stream)
	waitErr := command.Wait()
	if report.failed > 0 {
		waitErr = nil // the report covers failed tests
	}
	return errors.Join(readErr, waitErr)
}

// arguments makes go test print events. A -C flag must stay the first argument.
func arguments(args []string) []string {
	first := 0
	if len(args) > 1 && args[0] == "-C" {
		first = 2
	}
	return slices.Concat([]string{"test"}, args[:first], []string{"-json"}, args[first:])
}
