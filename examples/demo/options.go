// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
)

// options are what the command line and the environment ask for.
type options struct {
	// verbose shows plan, nft script and logs.
	verbose bool
	// keep leaves the temporary directory behind.
	keep bool
	// binaries is a directory of binaries to use in place of building them; "" builds them.
	binaries string
	// podPath is the file with the pod; "" is the pod that comes with the program.
	podPath string
}

const usage = `demo shows on this machine what meshcni does on a Kubernetes node: it makes a node
of its own in a sandbox, runs the real install-cni there, creates a pod's network
through libcni, makes real connections from, to and within the pod, and prints for
each what was expected, by which rule and why, beside what the kernel did. Then it
spoils the CNI configuration, watches it being restored, and takes all away again.

It needs Linux and Go; no cluster, no other programs, no root. Nothing beyond a
temporary directory is touched.

Usage:
  go run ./examples/demo [flags]
  POD=my-pod.yaml go run ./examples/demo    with a Pod of yours, YAML or JSON, as
                                            "kubectl get pod NAME -o yaml" prints it

Flags:
  -v               show the plan, the nft script and the daemon's and the plugin's log
  --keep           keep the temporary directory
  --binaries DIR   use the binaries in DIR in place of building them
  -h, --help       show this

Environment:
  POD        file with the Pod to show, in place of the one that comes along
  NO_COLOR   print without colours

Exit codes: 0 everything was as expected, 1 something was not or failed, 2 the
command line or the Pod is wrong.
`

// parseOptions reads the command line.
func parseOptions(args []string, getenv func(string) string) (options, error) {
	o := options{podPath: getenv("POD")}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.verbose, "v", false, "")
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
