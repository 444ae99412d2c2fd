// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, stdout io.Writer) error {
	command := "wait"
	if len(arguments) > 0 {
		command, arguments = arguments[0], arguments[1:]
	}
	for _, c := range commands(ctx, stdout) {
		if c.name != command {
			continue
		}
		if len(arguments) < c.least || len(arguments) > c.most {
			return fmt.Errorf("usage: workload %s %s", c.name, c.usage)
		}
		return c.run(arguments)
	}
	return fmt.Errorf("there is no command %q", command)
}

// command is a command with how many arguments it takes.
type command struct {
	name, usage string
	least, most int
	run         func(arguments []string) error
}

func commands(ctx context.Context, stdout io.Writer) []command {
	return []command{
		{"serve", "NAME PORT...", 2, math.MaxInt, func(a []string) error { return serve(ctx, a[0], a[1:]) }},
		{"proxy", "sidecar NAME", 2, 2, func(a []string) error { return proxy(ctx, a[1]) }},
		{"transparent", "", 0, 0, func([]string) error { return transparent(ctx) }},
		{"get", "...", 0, math.MaxInt, func(a []string) error { return get(ctx, stdout, a) }},
		{"loop", "...", 0, math.MaxInt, func(a []string) error { return loop(ctx, stdout, a) }},
		{"load", "URL", 1, 1, func(a []string) error { return load(ctx, stdout, a[0]) }},
		{"accepts", "ADDRESS", 1, 1, func(a []string) error { return accepts(ctx, stdout, a[0]) }},
		{"namespace", "", 0, 0, func([]string) error { return namespace(stdout) }},
		{"wait", "", 0, 0, func([]string) error { return wait(ctx) }},
	}
}

// wait waits for the end, and reaps orphaned processes, as the first process of a pod must.
func wait(ctx context.Context) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-children:
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if err != nil || pid <= 0 {
					break
				}
			}
		}
	}
}

// namespace prints the number of the network namespace, by which the node finds it.
func namespace(stdout io.Writer) error {
	var info syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/net", &info); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdout, info.Ino)
	return err
}
