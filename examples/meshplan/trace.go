// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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
TCP may have "flags ack" or the like behind it, a socket "mark 0x539" and
"transparent" behind its ids.

The pod has lo, and eth0 with the addresses of its status or of the live namespace,
or else 10.244.0.2 and fd00:10:244::2. The proxy listens on the ports that rules send
connections to, and an application on each port that a packet asks for.

What others have in a live namespace is not walked: a warning names their chains,
and "explain" takes them into account.`

const traceExample = `  # why is port 8443 not captured?
  meshplan trace pod.yaml "tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8443"

  # the verdicts alone
  meshplan trace pod.yaml -o short "tcp uid 1000 gid 1000 > 192.0.2.1:443" \
                                   "udp uid 1000 gid 1000 > 192.0.2.1:53"`

// tracing is what the command line of "meshplan trace" says.
type tracing struct {
	listen    []uint16
	addresses []string
}

func newTraceCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "trace SOURCE PACKET...",
		Short:   "Tell where a packet ends, and which rule decides that",
		Long:    traceLong,
		Example: traceExample,
		Args:    arguments(2, -1, "a SOURCE and a PACKET at least"),
	}
	var t tracing
	var ports []uint
	source := addSource(command)
	flags := command.Flags()
	flags.UintSliceVar(&ports, "listen", nil, "TCP and UDP ports that the application listens on, in place of all that are asked for")
	flags.StringSliceVar(&t.addresses, "address", nil, "addresses of eth0 with prefix length, in place of the source's own")
	form := addOutput(command, "report", "short", "json")
	command.RunE = func(command *cobra.Command, args []string) error {
		packets, err := parsePackets(args[1:])
		if err != nil {
			return usage(command, err)
		}
		for _, port := range ports {
			if port < 1 || port > 65535 {
				return usage(command, fmt.Errorf("--listen %d is no port", port))
			}
			t.listen = append(t.listen, uint16(port))
		}
		prefixes, err := t.prefixes()
		if err != nil {
			return usage(command, err)
		}
		return source.tell(command, args[0], form, func(r rules) (answer, error) {
			for _, chain := range chainsOfOthers(r.state) {
				fmt.Fprintf(command.ErrOrStderr(), "warning: %s is somebody else's, may change this, and is not walked: ask explain\n", chain)
			}
			if prefixes != nil {
				r.addresses = prefixes
			}
			return t.walk(r, packets, form.value)
		})
	}
	return command
}

// chainsOfOthers are those chains of others that can change an outcome.
func chainsOfOthers(state interception.State) []string {
	var chains []string
	for _, drift := range interception.Diff(state.Plan(), state) {
		if drift.Kind == interception.DriftForeign && !slices.Contains(chains, drift.At) {
			chains = append(chains, drift.At)
		}
	}
	return chains
}

func parsePackets(lines []string) ([]trace.Packet, error) {
	packets := make([]trace.Packet, len(lines))
	for i, line := range lines {
		var err error
		if packets[i], err = trace.ParsePacket(line); err != nil {
			return nil, err
		}
	}
	return packets, nil
}

func (t tracing) prefixes() ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range t.addresses {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--address %s: %w", text, err)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// walk traces the packets through a pod.
func (t tracing) walk(r rules, packets []trace.Packet, form string) (answer, error) {
	world := trace.Sidecar(r.state.Plan(), trace.SidecarOptions{Addresses: r.addresses})
	pod := &world.Namespaces[0]
	pod.Listeners = t.application(pod.Listeners, packets)
	for _, packet := range packets {
		if err := checkArrival(*pod, packet); err != nil {
			return answer{}, err
		}
	}
	var text strings.Builder
	views := make([]outcomeView, len(packets))
	for i, packet := range packets {
		outcome, err := trace.Trace(world, packet)
		if err != nil {
			return answer{}, fmt.Errorf("packet %q: %w", packet, err)
		}
		views[i] = viewOutcome(outcome)
		if form == "short" {
			fmt.Fprintln(&text, outcome)
			continue
		}
		if i > 0 {
			text.WriteString("\n")
		}
		text.WriteString(outcome.Report())
	}
	return answer{text: text.String(), view: views}, nil
}

// checkArrival refuses a packet that comes in for an address which the pod doesn't have: nobody would send it there.
func checkArrival(pod trace.Namespace, packet trace.Packet) error {
	arrival, arrives := packet.From.(trace.Arrival)
	if !arrives || !slices.ContainsFunc(pod.Links, func(l trace.Link) bool { return l.Name == arrival.Link }) {
		return nil // what else is wrong with it, the trace says
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

// application adds the application's listeners to those of the proxy.
func (t tracing) application(listeners []trace.Listener, packets []trace.Packet) []trace.Listener {
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

// outcomeView is an outcome for programs.
type outcomeView struct {
	Packet      string     `json:"packet"`
	Verdict     string     `json:"verdict"`
	Link        string     `json:"link,omitempty"`
	Source      string     `json:"source"`
	Destination string     `json:"destination"`
	Listener    string     `json:"listener,omitempty"`
	Original    string     `json:"originalDestination,omitempty"`
	Decisive    *stepView  `json:"decisive,omitempty"`
	Path        []stepView `json:"path"`
}

type stepView struct {
	Hook   string   `json:"hook"`
	Table  string   `json:"table"`
	Chain  string   `json:"chain,omitempty"`
	Rule   string   `json:"rule"`
	Match  string   `json:"match,omitempty"`
	Action string   `json:"action"`
	Why    string   `json:"why"`
	From   []string `json:"from,omitempty"`
}

func viewOutcome(o trace.Outcome) outcomeView {
	view := outcomeView{
		Packet: o.Packet.String(), Verdict: o.Verdict.String(), Link: string(o.Link),
		Source: o.Header.Src.String(), Destination: o.Header.Dst.String(), Listener: o.Listener.Name, Path: []stepView{},
	}
	if o.OriginalDst.IsValid() {
		view.Original = o.OriginalDst.String()
	}
	for _, step := range o.Path {
		view.Path = append(view.Path, viewStep(step))
	}
	if step, ok := o.Decisive(); ok {
		decisive := viewStep(step)
		view.Decisive = &decisive
	}
	return view
}

func viewStep(s trace.Step) stepView {
	view := stepView{
		Hook: s.Hook.String(), Table: s.Table.String(), Chain: string(s.Chain), Rule: string(s.Rule.ID),
		Match: s.Rule.Match.String(), Action: s.Rule.Action.String(), Why: s.Rule.Why,
	}
	for _, source := range s.Rule.From {
		view.From = append(view.From, source.String())
	}
	return view
}
