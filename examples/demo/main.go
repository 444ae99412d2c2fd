// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func main() {
	kernel.Explain()
	os.Exit(run(context.Background(), processEnvironment()))
}

// environment is everything that the program takes from its surroundings, except its temporary
// directory.
type environment struct {
	// args are the command line's words after the program's name.
	args   []string
	getenv func(name string) string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	// untilSignal ends on a signal to stop. Call it after entering the sandbox.
	untilSignal func(context.Context) context.Context
	// self is the command line that starts this program again.
	self []string
	// enter continues inside a sandbox, with the stage in the environment.
	enter func(ctx context.Context, stage string) (sandbox.Info, error)
	// expect predicts what happens to a packet.
	expect func(trace.World, trace.Packet) (trace.Outcome, error)
}

func processEnvironment() environment {
	return environment{
		args:        os.Args[1:],
		getenv:      os.Getenv,
		stdin:       os.Stdin,
		stdout:      os.Stdout,
		stderr:      os.Stderr,
		untilSignal: untilSignal,
		self:        []string{"/proc/self/exe"},
		enter:       enter,
		expect:      trace.Trace,
	}
}

// stageVariable gives the stage to the program inside the sandbox.
const stageVariable = "MESHCNI_DEMO_STAGE"

func enter(ctx context.Context, stage string) (sandbox.Info, error) {
	if err := os.Setenv(stageVariable, stage); err != nil {
		return sandbox.Info{}, err
	}
	return sandbox.Enter(ctx)
}

// untilSignal ends on a signal to stop. A second signal ends the process at once.
func untilSignal(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx
}

type options struct {
	// keep leaves the temporary directory in place.
	keep bool
	// binaries is a directory of ready-made binaries; "" builds them.
	binaries string
	// podPath is the file with the pod; "" stands for the program's own pod.
	podPath string
}

const usage = `demo shows on this machine what meshcni does on a Kubernetes node: it makes a node
of its own in a sandbox, runs the real install-cni there, creates a pod's network
through libcni, makes real connections from, to and within the pod, and prints for
each what was expected, by which rule and why, beside what the kernel did. It does
the same with pods that node-ambient enrols while they run, and withdraws. Then it
spoils the CNI configuration, watches it being restored, and takes all away again.

It needs Linux and Go; no cluster, no other programs, no root. Nothing beyond a
temporary directory is touched.

Usage:
  go run ./examples/demo [flags]
  POD=my-pod.yaml go run ./examples/demo    with a Pod of yours, YAML or JSON, as
                                            "kubectl get pod NAME -o yaml" prints it

Flags:
  --keep           keep the temporary directory, which has the plan, the nft script,
                   the traces and the logs
  --binaries DIR   use the binaries in DIR in place of building them
  -h, --help       show this

Environment:
  POD   file with the Pod to show, in place of the one that comes along

Exit codes: 0 everything was as expected, 1 something was not or failed, 2 the
command line or the Pod is wrong.
`

func parseOptions(args []string, getenv func(string) string) (options, error) {
	o := options{podPath: getenv("POD")}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.keep, "keep", false, "")
	flags.StringVar(&o.binaries, "binaries", "", "")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("%q is not a flag: the pod is named by the environment variable POD", flags.Arg(0))
	}
	return o, nil
}
