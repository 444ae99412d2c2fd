// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"strings"
)

// String returns the outcome in one line: the verdict with its details, and the decisive rule with
// its reason. Its form is stable, for golden files:
//
//	delivered to proxy-15001 (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; outbound.capture: all other connections go to the proxy
func (o Outcome) String() string {
	step, ok := o.Decisive()
	if !ok {
		return o.end() + "; no rule decided"
	}
	return fmt.Sprintf("%s; %s: %s", o.end(), step.Rule.ID, step.Rule.Why)
}

// end returns the verdict with its details.
func (o Outcome) end() string {
	switch o.Verdict {
	case Delivered:
		return "delivered to " + o.taker()
	case Refused:
		if o.Packet.opens() {
			return fmt.Sprintf("refused: nothing listens at %s", o.Header.Dst)
		}
		return fmt.Sprintf("refused: nothing has its connection at %s", o.Header.Dst)
	case Sent:
		return fmt.Sprintf("sent by %s to %s", o.Link, o.Header.Dst)
	case Unroutable:
		return fmt.Sprintf("unroutable: %s", o.Cause)
	case Dropped:
		return fmt.Sprintf("dropped on the way to %s", o.Header.Dst)
	case Rejected:
		return fmt.Sprintf("rejected on the way to %s", o.Header.Dst)
	case Unknown:
		return "unknown: the world does not give the members of a live set"
	default:
		return o.Verdict.String()
	}
}

// taker returns the socket that took the packet, with the addresses that it learns.
func (o Outcome) taker() string {
	switch {
	case o.Tunnel != "":
		return fmt.Sprintf("tunnel %s at %s, from %s", o.Tunnel, o.Header.Dst, o.Header.Src)
	case o.Socket != nil:
		return fmt.Sprintf("%s at %s, from %s", o.Socket, o.Header.Dst, o.Header.Src)
	case o.Listener == Listener{}:
		return fmt.Sprintf("its connection at %s, from %s", o.Header.Dst, o.Header.Src)
	}
	text := o.Listener.Name
	if o.Listener.Proxy {
		text += " (proxy)"
	}
	switch {
	case o.OriginalDst != o.Header.Dst:
		text += fmt.Sprintf(" at %s, originally %s", o.Header.Dst, o.OriginalDst)
	case uint16(o.Listener.Port) != o.Header.Dst.Port():
		text += fmt.Sprintf(" at :%d, as it is, for %s", o.Listener.Port, o.Header.Dst)
	default:
		text += " at " + o.Header.Dst.String()
	}
	return text
}

// Report returns the outcome with its whole path, for people and golden files: the packet, each
// hook with the entries taken and the rules that matched (with their provenance and changes), the
// translations of a bound flow, and the outcome. It ends in a newline.
func (o Outcome) Report() string {
	var b strings.Builder
	fmt.Fprintln(&b, o.Packet)
	last := Step{After: o.Packet.header()}
	for i, s := range o.Path {
		writeBinding(&b, last.After, s.Before)
		if i == 0 || s.Hook != last.Hook || s.Namespace != last.Namespace {
			fmt.Fprintf(&b, "  %s %s%s\n", s.Namespace, s.Hook, s.links())
		}
		writeStep(&b, s)
		last = s
	}
	writeBinding(&b, last.After, o.Header)
	fmt.Fprintln(&b, o)
	return b.String()
}

// writeBinding writes the translation that the flow's binding made outside of the steps.
func writeBinding(b *strings.Builder, before, after Header) {
	if before != after {
		fmt.Fprintf(b, "  bound by nat: now %s\n", after)
	}
}

func writeStep(b *strings.Builder, s Step) {
	chain := s.Table.String()
	if s.Chain != "" {
		chain += "/" + string(s.Chain)
	}
	match := cmp.Or(s.Rule.Match.String(), "any")
	fmt.Fprintf(b, "    %s %s: %s -> %v  # %s: %s\n", s.Owner, chain, match, s.Rule.Action, s.Rule.ID, s.Rule.Why)
	for _, source := range s.Rule.From {
		fmt.Fprintf(b, "      from %s\n", source)
	}
	if s.Changed() {
		fmt.Fprintf(b, "      now %s\n", s.After)
	}
	if s.Rerouted && s.Before.Mark != s.After.Mark {
		fmt.Fprintln(b, "      by another link now")
	}
}

// links returns " in eth0", " out lo", or both.
func (s Step) links() string {
	text := ""
	if s.In != "" {
		text += " in " + string(s.In)
	}
	if s.Out != "" {
		text += " out " + string(s.Out)
	}
	return text
}
