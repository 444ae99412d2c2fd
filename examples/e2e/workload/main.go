// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	switch command {
	case "serve":
		if len(arguments) < 2 {
			return errors.New("usage: workload serve NAME PORT")
		}
		return serve(ctx, arguments[0], arguments[1:])
	case "proxy":
		if len(arguments) != 2 || arguments[0] != "sidecar" {
			return errors.New("usage: workload proxy sidecar NAME")
		}
		return proxy(ctx, arguments[1])
	case "get":
		return get(ctx, stdout, arguments)
	case "loop":
		return loop(ctx, stdout, arguments)
	case "load":
		if len(arguments) != 1 {
			return errors.New("usage: workload load URL")
		}
		return load(ctx, stdout, arguments[0])
	case "accepts":
		if len(arguments) != 1 {
			return errors.New("usage: workload accepts ADDRESS")
		}
		return accepts(ctx, stdout, arguments[0])
	case "namespace":
		return namespace(stdout)
	case "wait":
		return wait(ctx)
	}
	return fmt.Errorf("there is no command %q", command)
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
