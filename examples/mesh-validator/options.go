// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
)

type options struct {
	check      []kind
	families   []family // empty means those of the pod's addresses
	outbound   uint
	inbound    uint
	tunnel     uint
	probe      uint
	proxyUID   int
	proxyGID   int
	to         []netip.AddrPort
	tproxy     bool
	stay       bool
	timeout    time.Duration
	output     string
	message    string
	askVersion bool
}

const usageText = `mesh-validator tries whether the traffic of the pod that it runs in is captured.

It listens on the proxy's ports, so it runs before the proxy. It needs no privileges.

Checks (-check, several with commas):
  outbound  connects to an address that no machine has, which has to end at -outbound-port; not for the proxy's user
  self      connects to the pod's own address as the proxy's user, which has to end at -inbound-port
  probe     waits for a startup probe (httpGet) to -probe-port, which has to end at -inbound-port
  auto      self for the proxy's user, outbound for others, and probe with -probe-port

Examples:
  mesh-validator                             an init container that runs as any user but the proxy's
  mesh-validator -check self                 an init container that runs as the proxy's user
  mesh-validator -probe-port 15019 -stay     a native sidecar with a startup probe
  mesh-validator -families ipv4 -o json      one family, and what came of it as JSON

Exit codes: 0 captured, 126 not captured, 2 the command line is wrong, 1 it could not be tried.

Flags:
`

// errUsage is in the error of a wrong command line.
var errUsage = errors.New("see mesh-validator -help")

func parse(env environment) (options, error) {
	var o options
	var checks, families, to, mode string
	flags := flag.NewFlagSet("mesh-validator", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&checks, "check", "auto", "`what` to try: auto, or of outbound, self and probe")
	flags.StringVar(&families, "families", "auto", "`which`: ipv4, ipv6 or both with a comma; auto: those of the pod's addresses")
	flags.UintVar(&o.outbound, "outbound-port", 15001, "the proxy's `port` for what leaves the pod")
	flags.UintVar(&o.inbound, "inbound-port", 15006, "the proxy's `port` for what comes to the pod")
	flags.UintVar(&o.tunnel, "tunnel-port", 15008, "a `port` that is never captured; with -mode TPROXY what comes there is compared with")
	flags.UintVar(&o.probe, "probe-port", 0, "the `port` of the startup probe")
	flags.IntVar(&o.proxyUID, "proxy-uid", 1337, "the proxy's `user`")
	flags.IntVar(&o.proxyGID, "proxy-gid", 1337, "the proxy's `group`")
	flags.StringVar(&to, "outbound-to", "192.0.2.1:15002,[2001:db8::1]:15002",
		"`addresses` with ports to connect to, at most one of each family, which are neither the pod's nor excluded")
	flags.StringVar(&mode, "mode", "REDIRECT", "how inbound connections are captured: REDIRECT or TPROXY")
	flags.BoolVar(&o.stay, "stay", false, "when all is captured, give up the ports and wait for the end, as native sidecars do")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "how `long` to try")
	flags.StringVar(&o.output, "o", "text", "`form` of the output: text or json")
	flags.StringVar(&o.message, "termination-log", "/dev/termination-log", "`file` for the message of a failure; empty: none")
	flags.BoolVar(&o.askVersion, "version", false, "print the version")
	err := flags.Parse(env.args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(env.stdout)
		_, _ = io.WriteString(env.stdout, usageText)
		flags.PrintDefaults()
		return o, err
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	if err == nil {
		o.tproxy = mode == "TPROXY"
		err = errors.Join(o.choose(checks, env), o.narrow(families), o.aim(to), o.validate(mode))
	}
	if err != nil {
		return o, fmt.Errorf("%w; %w", err, errUsage)
	}
	return o, nil
}

// isProxy reports whether the rules treat the process as the proxy, whose connections are not
// captured.
func (o *options) isProxy(env environment) bool {
	return env.uid == o.proxyUID || env.gid == o.proxyGID
}

// choose parses the checks, and refuses those that this user cannot make.
func (o *options) choose(text string, env environment) error {
	if text == "auto" {
		text = string(kindOutbound)
		if o.isProxy(env) {
			text = string(kindSelf)
		}
		if o.probe != 0 {
			text += "," + string(kindProbe)
		}
	}
	for name := range strings.SplitSeq(text, ",") {
		k := kind(name)
		if slices.Contains(o.check, k) {
			return fmt.Errorf("-check names %s twice", k)
		}
		if err := o.possible(k, env); err != nil {
			return err
		}
		o.check = append(o.check, k)
	}
	return nil
}

// possible returns why this user, or these flags, cannot make a check.
func (o *options) possible(k kind, env environment) error {
	proxy := o.isProxy(env)
	switch {
	case k != kindOutbound && k != kindSelf && k != kindProbe:
		return fmt.Errorf("-check %q: there are outbound, self and probe", k)
	case k == kindOutbound && proxy:
		return fmt.Errorf("-check outbound: user %d, group %d is the proxy's, whose connections are not captured; "+
			"run it as another user and group, or name the proxy's with -proxy-uid and -proxy-gid", env.uid, env.gid)
	case k == kindSelf && !proxy:
		return fmt.Errorf("-check self: only the proxy's calls to the pod itself are captured, and user %d, group %d is not the proxy; "+
			"run it as user %d", env.uid, env.gid, o.proxyUID)
	case k == kindProbe && o.probe == 0:
		return errors.New("-check probe: name the probe's port with -probe-port")
	default:
		return nil
	}
}

func (o *options) narrow(text string) error {
	if text == "auto" {
		return nil
	}
	for name := range strings.SplitSeq(text, ",") {
		f := family(name)
		if f != ipv4 && f != ipv6 || slices.Contains(o.families, f) {
			return fmt.Errorf("-families %q: name ipv4, ipv6 or both", text)
		}
		o.families = append(o.families, f)
	}
	return nil
}

func (o *options) aim(text string) error {
	seen := map[family]bool{}
	for name := range strings.SplitSeq(text, ",") {
		to, err := netip.ParseAddrPort(name)
		switch {
		case err != nil:
			return fmt.Errorf("-outbound-to %q: %w", name, err)
		case to.Port() == 0 || to.Addr().IsLoopback() || to.Addr().IsUnspecified() || to.Addr().Is4In6() || seen[familyOf(to.Addr())]:
			return fmt.Errorf("-outbound-to %s: name one address of each family outside of the pod, with a port", name)
		}
		seen[familyOf(to.Addr())] = true
		o.to = append(o.to, to)
	}
	return nil
}

func (o *options) validate(mode string) error {
	ports := []uint{o.outbound, o.inbound, o.tunnel}
	if o.probe != 0 {
		ports = append(ports, o.probe)
	}
	seen := map[uint]bool{}
	for _, port := range ports {
		if port == 0 || port > 65535 || seen[port] {
			return fmt.Errorf("ports %v: each is another one from 1 to 65535", ports)
		}
		seen[port] = true
	}
	switch {
	case mode != "REDIRECT" && mode != "TPROXY":
		return fmt.Errorf("-mode %q: there are REDIRECT and TPROXY", mode)
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("-o %q: there are text and json", o.output)
	case o.timeout <= 0:
		return fmt.Errorf("-timeout %s: give a time above zero", o.timeout)
	}
	return nil
}
