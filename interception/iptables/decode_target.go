// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// target decodes the rule's action, which comes last.
func (d *decoder) target(option string) error {
	name, err := d.take()
	if err != nil {
		return err
	}
	if d.negated {
		return errors.New("the target is negated")
	}
	if own, ok := strings.CutPrefix(name, d.prefix); ok {
		chain := interception.ChainName(strings.ToLower(own))
		// A chain that comes from no chain of a plan, such as the guard, has a name that no plan
		// has.
		if option == "-g" || strings.ToUpper(own) != own || own == "" {
			return fmt.Errorf("%s %s is not a jump of a plan", option, name)
		}
		d.action = interception.Jump{Chain: chain}
		return nil
	}
	if option == "-g" {
		return errUnknown
	}
	options := d.words
	d.words = nil
	d.action, err = targetAction(name, options, d.family)
	d.reset = name == "REJECT" && len(options) == 2 && options[1] == "tcp-reset"
	return err
}

// targetAction returns the action of a target with its options.
func targetAction(name string, options []string, family interception.Family) (interception.Action, error) {
	switch name {
	case "CT":
		return trackingAction(options)
	case "CONNMARK":
		return connMarkAction(options)
	case "TPROXY":
		return tproxyAction(options, family)
	}
	if len(options) == 2 {
		return valueAction(name+" "+options[0], options[1], family)
	}
	if len(options) > 0 {
		return nil, errUnknown
	}
	switch name {
	case "ACCEPT":
		return interception.Accept{}, nil
	case "RETURN":
		return interception.Return{}, nil
	case "DROP":
		return interception.Drop{}, nil
	}
	return nil, errUnknown
}

// valueAction returns the action of a target with one option.
func valueAction(target, value string, family interception.Family) (interception.Action, error) {
	switch target {
	case "LOG --log-prefix":
		return interception.Log{Prefix: value}, nil
	case "MARK --set-xmark":
		mark, err := parseMark(value)
		return interception.SetMark{Mark: mark}, err
	case "REDIRECT --to-ports":
		port, err := parsePort(value)
		return interception.RedirectTo{Port: port}, err
	case "DNAT --to-destination":
		addr, port, err := parseEndpoint(value)
		return interception.DNATTo{Addr: addr, Port: port}, err
	case "SNAT --to-source":
		addr, port, err := parseEndpoint(value)
		return interception.SNATTo{Addr: addr, Port: port}, err
	case "REJECT --reject-with":
		unreachable := map[interception.Family]string{interception.IPv4: "icmp-port-unreachable", interception.IPv6: "icmp6-port-unreachable"}
		if value == unreachable[family] || value == "tcp-reset" {
			return interception.Reject{}, nil
		}
	}
	return nil, errUnknown
}

func parsePort(text string) (interception.Port, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	return interception.Port(port), err
}

// trackingAction decodes a target CT. That of zone 0 is listed without an option.
func trackingAction(options []string) (interception.Action, error) {
	switch {
	case len(options) == 0:
		return interception.SetZone{}, nil
	case len(options) == 1 && options[0] == "--notrack":
		return interception.NoTrack{}, nil
	case len(options) != 2:
		return nil, errUnknown
	}
	direction, ok := map[string]interception.Direction{
		"--zone": interception.AnyDirection, "--zone-orig": interception.DirectionOriginal, "--zone-reply": interception.DirectionReply,
	}[options[0]]
	if !ok {
		return nil, errUnknown
	}
	zone, err := strconv.ParseUint(options[1], 10, 16)
	return interception.SetZone{Zone: uint16(zone), Direction: direction}, err
}

func connMarkAction(options []string) (interception.Action, error) {
	if len(options) == 2 && options[0] == "--set-xmark" {
		mark, err := parseMark(options[1])
		return interception.SetConnMark{Mark: mark}, err
	}
	if len(options) != 5 || options[1] != "--nfmask" || options[3] != "--ctmask" || options[2] != options[4] {
		return nil, errUnknown
	}
	mask, err := strconv.ParseUint(options[2], 0, 32)
	if err != nil || mask == 0 {
		return nil, errUnknown
	}
	whole := interception.Mark(mask)
	if whole == ^interception.Mark(0) {
		whole = 0 // which means all bits
	}
	switch options[0] {
	case "--save-mark":
		return interception.SaveMark{Mask: whole}, nil
	case "--restore-mark":
		return interception.RestoreMark{Mask: whole}, nil
	}
	return nil, errUnknown
}

// tproxyAction decodes a target TPROXY to the packet's incoming address.
func tproxyAction(options []string, family interception.Family) (interception.Action, error) {
	if len(options) != 6 || options[0] != "--on-port" || options[2] != "--on-ip" || options[4] != "--tproxy-mark" {
		return nil, errUnknown
	}
	port, err := parsePort(options[1])
	addr, err2 := netip.ParseAddr(options[3])
	mark, err3 := parseMark(options[5])
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	if !addr.IsUnspecified() || interception.FamilyOf(addr) != family {
		return nil, errUnknown
	}
	return interception.TProxyTo{Port: port, Mark: mark}, nil
}
