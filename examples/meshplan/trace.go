// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

const traceLong = `Trace walks packets through a pod with the rules of a source, without a kernel,
and prints each one's way, where it ends, and which rule decided that.

A PACKET is the first one of a connection:
  tcp uid 1000 gid 1000 > 192.0.2.1:443           from the pod, by user and group
  tcp uid 1337 gid 1337 127.0.0.6:0 > 10.244.0.2:8080   with a source address
  tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080   from outside, by an interface
TCP may be followed by "flags ack" or the like, a socket's ids by "mark 0x539" and
"transparent".

The pod has lo, and eth0 with the addresses of its status or of the live namespace,
or else 10.244.0.2 and fd00:10:244::2. The proxy listens on the ports that rules send
connections to, and an application on each port that a packet asks for.

Of several pods, each is shown the packets from outside that are for its addresses.

With --world FILE there is no SOURCE: the packets walk through all network namespaces
that FILE describes in JSON, over wires and tunnels, with the rules of each. A packet
follows the name of its namespace:
  "pod: tcp uid 1000 gid 1000 > 192.0.2.1:443"
A wire joins links of namespaces, two for a veth pair, more for a bridge. A plan is an
object as "meshplan plan -o json" prints it, or the name of a file with one; a veth of a
plan needs no wire. docs/explain.md lists all fields.

What others have in a live namespace is not walked: a warning names their chains,
and "explain" takes them into account.`

const traceExample = `  # why is port 8443 not captured?
  meshplan trace pod.yaml "tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8443"

  # the verdicts alone
  meshplan trace pod.yaml -o short "tcp uid 1000 gid 1000 > 192.0.2.1:443" \
                                   "udp uid 1000 gid 1000 > 192.0.2.1:53"

  # a pod and its node, which forwards; the answer's way, too
  cat > world.json <<'END'
  {"namespaces": [
    {"name": "pod", "links": [{"name": "eth0", "addresses": ["10.244.0.2/30"]}]},
    {"name": "node", "forwards": true, "links": [
      {"name": "eth0", "addresses": ["192.0.2.1/24"]},
      {"name": "veth1", "addresses": ["10.244.0.1/30"]}]}],
   "wires": [["pod eth0", "node veth1"]]}
  END
  meshplan trace --world world.json --answer "pod: tcp uid 1000 gid 1000 > 198.51.100.7:443"`

func newTraceCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "trace {SOURCE | --world FILE} PACKET...",
		Short:   "Tell where a packet ends, and which rule decides that",
		Long:    traceLong,
		Example: traceExample,
	}
	var world string
	var answers bool
	command.Args = func(command *cobra.Command, args []string) error {
		if world != "" {
			return cobra.MinimumNArgs(1)(command, args)
		}
		return cobra.MinimumNArgs(2)(command, args)
	}
	var ports []uint
	var addresses []string
	source := addSource(command)
	flags := command.Flags()
	flags.UintSliceVar(&ports, "listen", nil, "TCP and UDP ports that the application listens on, in place of all that are asked for")
	flags.StringSliceVar(&addresses, "address", nil, "addresses of eth0, with prefix length or without, in place of the source's own")
	flags.StringVar(&world, "world", "", "file that describes network namespaces, in place of a source")
	flags.BoolVar(&answers, "answer", false, "with --world, follow also the answer to each packet")
	form := addOutput(command, "report", "short", "json")
	command.RunE = func(command *cobra.Command, args []string) error {
		if world != "" {
			if err := refuseSourceFlags(command); err != nil {
				return err
			}
			return follow(command, world, args, form.value, answers)
		}
		if answers {
			return errors.New("--answer goes with --world")
		}
		t, err := newTracing(args[1:], ports, addresses)
		if err != nil {
			return err
		}
		t.form, t.notes = form.value, command.ErrOrStderr()
		err = source.print(command, args[0], form, t.walk)
		if lost := t.unreached(); lost != nil && (err == nil || errors.Is(err, errFindings)) {
			return fmt.Errorf("%s: %w", args[0], lost)
		}
		return err
	}
	return command
}

// refuseSourceFlags refuses the flags that are about a source: a world has none, and an answer that
// ignores a flag looks like one that heeds it.
func refuseSourceFlags(command *cobra.Command) error {
	for _, name := range []string{"owner", "spare", "pod", "anyway", "listen", "address", "ipv4-only", "dataplane"} {
		if command.Flags().Changed(name) {
			return fmt.Errorf("--%s goes with a SOURCE: with --world, the file says all", name)
		}
	}
	return nil
}

// tracing is the command line of "meshplan trace", with the progress through its packets.
type tracing struct {
	packets   []trace.Packet
	listen    []uint16
	addresses []netip.Prefix // replace the pod's own; nil keeps those
	form      string
	notes     io.Writer
	// reached and passed record for each packet whether a pod takes it, and whether a pod was
	// skipped.
	reached, passed []bool
}

func newTracing(packets []string, ports []uint, addresses []string) (*tracing, error) {
	t := &tracing{reached: make([]bool, len(packets)), passed: make([]bool, len(packets))}
	for _, text := range packets {
		packet, err := trace.ParsePacket(text)
		if err != nil {
			return nil, err
		}
		t.packets = append(t.packets, packet)
	}
	for _, port := range ports {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("--listen %d is not a port", port)
		}
		t.listen = append(t.listen, uint16(port))
	}
	var err error
	t.addresses, err = parsePrefixes(addresses)
	return t, err
}

// parsePrefixes parses addresses with their prefix length; without a length, an address is a
// network of its own.
func parsePrefixes(texts []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if address, bare := netip.ParseAddr(text); bare == nil && address.Zone() == "" {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("--address %s is not an address, as 10.244.1.7 and 10.244.1.7/24 are: %w", text, err)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// walk traces the packets through a pod. If there are several pods, it skips those that a packet
// does not reach.
func (t *tracing) walk(r rules) (answer, error) {
	for _, chain := range chainsOfOthers(r.state) {
		fmt.Fprintf(t.notes, "warning: %s belongs to another program, may change this, and is not walked: ask explain\n", chain)
	}
	if t.addresses != nil {
		r.addresses = t.addresses
	}
	world := trace.Sidecar(r.state.Plan(), trace.SidecarOptions{Addresses: r.addresses})
	pod := &world.Namespaces[0]
	packets, err := t.arriving(*pod, r)
	if err != nil {
		return answer{}, err
	}
	pod.Listeners = t.application(pod.Listeners, packets)
	var text strings.Builder
	views := make([]outcomeView, len(packets))
	for i, packet := range packets {
		outcome, err := trace.Trace(world, packet)
		if err != nil {
			return answer{}, fmt.Errorf("packet %q: %w", packet, err)
		}
		views[i] = viewOutcome(outcome)
		if t.form == "short" {
			fmt.Fprintln(&text, outcome)
			continue
		}
		if i > 0 {
			text.WriteString("\n")
		}
		text.WriteString(outcome.Report())
	}
	return answer{text: text.String(), view: views, silent: len(packets) == 0}, nil
}

// arriving returns the packets that can reach or leave the pod. Any other packet is an error if
// there is only one pod.
func (t *tracing) arriving(pod trace.Namespace, r rules) ([]trace.Packet, error) {
	var packets []trace.Packet
	for i, packet := range t.packets {
		err := checkArrival(pod, packet)
		switch {
		case err == nil:
			t.reached[i] = true
			packets = append(packets, packet)
		case r.several:
			t.passed[i] = true
			fmt.Fprintf(t.notes, "note: skipped %s: %v\n", r.name, err)
		default:
			return nil, err
		}
	}
	return packets, nil
}

// unreached returns the error of a packet that reaches none of several pods; nil if each reaches
// one.
func (t *tracing) unreached() error {
	for i, packet := range t.packets {
		if t.passed[i] && !t.reached[i] {
			return fmt.Errorf("packet %q: no pod has the address %s: write one that the notes name, "+
				"or choose a pod with --pod, and give its own with --address",
				packet, packet.Dst.Addr())
		}
	}
	return nil
}

// checkArrival refuses an inbound packet for an address that the pod does not have: the network
// would not send it to this pod.
func checkArrival(pod trace.Namespace, packet trace.Packet) error {
	arrival, arrives := packet.From.(trace.Arrival)
	if !arrives || !slices.ContainsFunc(pod.Links, func(l trace.Link) bool { return l.Name == arrival.Link }) {
		return nil // the trace reports any other error
	}
	var all []string
	for _, link := range pod.Links {
		for _, prefix := range link.Addresses {
			if prefix.Addr() == packet.Dst.Addr() || link.Name == trace.Loopback().Name && prefix.Contains(packet.Dst.Addr()) {
				return nil
			}
			if link.Name == arrival.Link {
				all = append(all, prefix.Addr().String())
			}
		}
	}
	return fmt.Errorf("packet %q: the pod has no address %s, %s has %s: write one of these, or give the pod's own with --address",
		packet, packet.Dst.Addr(), arrival.Link, strings.Join(all, ", "))
}

// application adds the application's listeners to the proxy's.
func (t *tracing) application(listeners []trace.Listener, packets []trace.Packet) []trace.Listener {
	add := func(protocol interception.Protocol, port uint16) {
		at := interception.Port(port)
		if !slices.ContainsFunc(listeners, func(l trace.Listener) bool { return l.Protocol == protocol && l.Port == at }) {
			listeners = append(listeners, trace.Listener{Name: "application", Protocol: protocol, Port: at})
		}
	}
	for _, port := range t.listen {
		add(interception.ProtocolTCP, port)
		add(interception.ProtocolUDP, port)
	}
	if len(t.listen) == 0 {
		for _, packet := range packets {
			add(packet.Protocol, packet.Dst.Port())
		}
	}
	return listeners
}
