// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/meshcni/meshcni/ambient/ambienttest"
)

const usageText = `stand-in-proxy stands in for ztunnel in tests: without TLS, with a tunnel of its own.

It takes these variables of ztunnel's environment, with ztunnel's defaults:
  INPOD_UDS                         the agent's socket (/var/run/ztunnel/ztunnel.sock)
  PACKET_MARK                       the mark of its sockets (1337)
  LOCAL_XDS, LOCAL_XDS_PATH         the pods, as a document in JSON or its path; those whose protocol is HBONE have a tunnel
  CONNECTION_TERMINATION_DEADLINE   how long connections go on after SIGTERM (5s)
  TERMINATION_GRACE_PERIOD_SECONDS  the same, as Kubernetes' grace period, less what the end takes
It ignores those of certificates and of the control plane, and refuses a value of PROXY_MODE,
INPOD_PORT_REUSE, ENABLE_ORIG_SRC, IPV6_ENABLED or ENABLE_PROXY that it cannot follow.

Commands: proxy (also without a command), version, help.

Examples:
  stand-in-proxy proxy ztunnel                             as Istio's DaemonSet starts ztunnel
  INPOD_UDS=/tmp/z stand-in-proxy -resolver 10.96.0.10:53  an agent under test, and where queries go
  stand-in-proxy -late-ack 10s                             an agent that waits in vain
  stand-in-proxy -exit-after 3                             a proxy that dies instead of answering the third message

SIGTERM drains, SIGINT ends it at once, and SIGUSR1 takes away the listeners of all pods.
GET http://:15021/healthz/ready answers 200 once the agent has told of all pods and each is served.

Exit codes: 0 it was told to end, 1 it cannot work here, 2 the command line or the environment is wrong, 3 -exit-after.

Flags:
`

type options struct {
	faults     ambienttest.Faults
	refusal    string
	strict     bool
	resolvers  []netip.AddrPort
	stdin      bool
	askVersion bool
}

// errUsage is in the error of a wrong command line.
var errUsage = errors.New("see stand-in-proxy -help")

func parse(env environment) (options, error) {
	var o options
	flags := flag.NewFlagSet("stand-in-proxy", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.askVersion, "version", false, "print the version")
	flags.BoolVar(&o.stdin, "stdin", false, "end at once when standard input ends")
	const resolver = "an `address` with port that queries go to, in place of /etc/resolv.conf; again for another family"
	flags.Func("resolver", resolver, func(text string) error {
		address, err := netip.ParseAddrPort(text)
		o.resolvers = append(o.resolvers, address)
		return err
	})
	flags.StringVar(&o.refusal, "refuse", "", "refuse each pod with this `text`")
	flags.BoolVar(&o.strict, "strict", false, "reset connections to pods that come without a tunnel")
	exitAfter := addFaults(flags, &o.faults)
	err := flags.Parse(env.args)
	if errors.Is(err, flag.ErrHelp) || err == nil && flags.Arg(0) == "help" {
		fmt.Fprint(env.stdout, usageText)
		flags.SetOutput(env.stdout)
		flags.PrintDefaults()
		return o, flag.ErrHelp
	}
	if err == nil {
		err = o.check(*exitAfter, flags.Arg(0))
	}
	if err != nil {
		return o, fmt.Errorf("%s: %w: %w", strings.Join(env.args, " "), err, errUsage)
	}
	return o, nil
}

// addFaults adds the flags of what the proxy can do wrong.
func addFaults(flags *flag.FlagSet, f *ambienttest.Faults) (exitAfter *int) {
	flags.BoolVar(&f.NoHello, "no-hello", false, "connect and say nothing")
	flags.BoolVar(&f.NoAck, "no-ack", false, "acknowledge nothing")
	flags.DurationVar(&f.LateAck, "late-ack", 0, "wait for this `time` before each acknowledgement")
	flags.IntVar(&f.RefuseFirst, "refuse-first", 0, "refuse each pod this `number` of times")
	flags.BoolVar(&f.Unasked, "unasked", false, "acknowledge something right after the hello")
	flags.IntVar(&f.HangUpAfter, "hang-up-after", 0, "hang up after this `number` of messages, and connect again")
	flags.BoolVar(&f.Twice, "twice", false, "keep two connections at once")
	return flags.Int("exit-after", 0, "exit after this `number` of messages")
}

// check completes the options, and returns what is wrong with them. The command's further arguments
// are ignored, as ztunnel ignores them.
func (o *options) check(exitAfter int, command string) error {
	f := &o.faults
	switch {
	case exitAfter != 0 && f.HangUpAfter != 0:
		return errors.New("-exit-after and -hang-up-after exclude each other")
	case f.LateAck < 0 || min(f.RefuseFirst, f.HangUpAfter, exitAfter) < 0:
		return errors.New("a number or a time is negative")
	case command != "" && command != "proxy" && command != "version":
		return fmt.Errorf("there is no command %q", command)
	}
	if exitAfter != 0 {
		f.HangUpAfter, f.Exit = exitAfter, true
	}
	o.askVersion = o.askVersion || command == "version"
	return nil
}
