// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/meshcni/meshcni/internal/version"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, loseListeners)
	os.Exit(run(context.Background(), environment{
		args: os.Args[1:], getenv: os.LookupEnv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, signals: signals,
		version: version.String(), resolvConf: "/etc/resolv.conf", readiness: ":15021",
	}))
}

type environment struct {
	args           []string
	getenv         func(string) (string, bool)
	stdin          io.Reader
	stdout, stderr io.Writer
	signals        <-chan os.Signal
	version        string
	// resolvConf is the path of the list of resolvers (resolv.conf(5)).
	resolvConf string
	// readiness is the address of the server for readiness probes.
	readiness string
}
