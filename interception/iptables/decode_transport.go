// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// transport reads a condition on ports or flags.
func (d *decoder) transport(option, value string) error {
	field := &d.dst
	switch {
	case option == "--tcp-flags" && d.module == "tcp":
		return d.tcpFlags(value)
	case option == "--sport" && d.module != "multiport", option == "--sports" && d.module == "multiport":
		field = &d.src
	case option == "--dport" && d.module != "multiport", option == "--dports" && d.module == "multiport":
	default:
		return errUnknown
	}
	var ports interception.PortSet
	for word := range strings.SplitSeq(value, ",") {
		first, last, err := parseRange(word, ":", 16)
		if err != nil {
			return err
		}
		ports = ports.Union(interception.PortRange(interception.Port(first), interception.Port(last)))
	}
	return narrow(field, ports, d.negated, interception.PortSet.Union)
}

// tcpFlags reads the flags that are looked at, and behind them those that are set.
func (d *decoder) tcpFlags(mask string) error {
	set, err := d.take()
	if err != nil {
		return err
	}
	looked, err := parseFlags(mask)
	wanted, err2 := parseFlags(set)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	return narrow(&d.flags, interception.TCPFlags{Mask: looked, Set: wanted}, d.negated, nil)
}

func parseFlags(list string) (flags interception.TCPFlag, err error) {
	if list == "NONE" {
		return 0, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		flag := interception.FlagFIN
		for flag <= interception.FlagURG && strings.ToUpper(flag.String()) != name {
			flag <<= 1
		}
		if flag > interception.FlagURG {
			return 0, errUnknown
		}
		flags |= flag
	}
	return flags, nil
}

func parseStates(list string) (states interception.ConnState, err error) {
	for name := range strings.SplitSeq(list, ",") {
		state := interception.StateNew
		for state <= interception.StateUntracked && strings.ToUpper(state.String()) != name {
			state <<= 1
		}
		if state > interception.StateUntracked {
			return 0, errUnknown
		}
		states |= state
	}
	return states, nil
}
