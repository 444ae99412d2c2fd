// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// maxSlots is the number of slots of one multiport (XT_MULTI_PORTS). A range takes two.
const maxSlots = 15

// transport adds the conditions on the protocol, its ports and its flags. A single port or range
// and the flags use the protocol's own match, lists use multiport.
func (c *xtConditions) transport(l interception.L4) {
	protocol := protocolWords(l)
	if protocol == "" {
		return
	}
	c.is(protocol)
	own := joined(singlePort("--sport", l.SrcPort()), singlePort("--dport", l.DstPort()), tcpFlagWords(l.TCPFlags()))
	if own != "" {
		c.is("-m " + l.Protocol().String() + " " + own)
	}
	c.ports(protocol, "--sports", l.SrcPort())
	c.ports(protocol, "--dports", l.DstPort())
}

func protocolWords(l interception.L4) string {
	if l.Protocol() == interception.AnyProtocol {
		return ""
	}
	return "-p " + l.Protocol().String()
}

// singlePort returns the option for one port or range, but not for all ports; otherwise "".
func singlePort(option string, ports interception.Condition[interception.PortSet]) string {
	ranges := ports.Set().Ranges()
	if len(ranges) != 1 || ports.Set().IsAll() {
		return ""
	}
	r := ranges[0]
	// If the complement is one range, iptables-nft lists that instead.
	if ports.Negated() && r.First != r.Last {
		switch {
		case r.First == 0:
			return option + " " + portWords(interception.Range[interception.Port]{First: r.Last + 1, Last: ^interception.Port(0)})
		case r.Last == ^interception.Port(0):
			return option + " " + portWords(interception.Range[interception.Port]{First: 0, Last: r.First - 1})
		}
	}
	return not(ports.Negated()) + option + " " + portWords(r)
}

// ports adds a condition on a list of ports or on all ports.
func (c *xtConditions) ports(protocol, option string, ports interception.Condition[interception.PortSet]) {
	ranges := ports.Set().Ranges()
	switch {
	case ports.Present() && ports.Set().IsAll():
		if ports.Negated() {
			c.is() // every packet has a port
		}
		return
	case len(ranges) < 2:
		return
	}
	var words, inline, outside []string
	for _, slots := range pack(ranges) {
		words = append(words, "-m multiport "+option+" "+slots)
		inline = append(inline, "-m multiport ! "+option+" "+slots)
		outside = append(outside, protocol+" -m multiport "+option+" "+slots)
	}
	if ports.Negated() {
		c.isNot(outside, inline)
	} else {
		c.is(words...)
	}
}

// pack splits ranges into as few lists of 15 slots as possible, in order and each range whole.
func pack(ranges []interception.Range[interception.Port]) []string {
	var lists []string
	var list []string
	free := maxSlots
	for _, r := range ranges {
		slots := 1
		if r.First != r.Last {
			slots = 2
		}
		if slots > free {
			lists = append(lists, strings.Join(list, ","))
			list, free = nil, maxSlots
		}
		list = append(list, portWords(r))
		free -= slots
	}
	return append(lists, strings.Join(list, ","))
}

func portWords(r interception.Range[interception.Port]) string {
	if r.First == r.Last {
		return r.String()
	}
	return fmt.Sprintf("%d:%d", r.First, r.Last)
}

// tcpFlagWords returns the option for TCP flags, or "" without a condition.
func tcpFlagWords(flags interception.Condition[interception.TCPFlags]) string {
	if !flags.Present() {
		return ""
	}
	return not(flags.Negated()) + "--tcp-flags " + flagNames(flags.Set().Mask) + " " + flagNames(flags.Set().Set)
}

func flagNames(flags interception.TCPFlag) string { return strings.ToUpper(flags.String()) }
