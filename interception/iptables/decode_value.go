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

// parseAddress parses an address or a prefix. iptables also has masks that are not prefixes.
func parseAddress(text string, family interception.Family) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		addr, addrErr := netip.ParseAddr(text)
		if addrErr != nil || addr.Zone() != "" {
			return netip.Prefix{}, err
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if interception.FamilyOf(prefix.Addr()) != family {
		return netip.Prefix{}, errors.New("it is of the other family")
	}
	return prefix, nil
}

// parseRange parses a number or two numbers with a separator.
func parseRange(text, separator string, bits int) (first, last uint64, err error) {
	low, high, two := strings.Cut(text, separator)
	if !two {
		high = low
	}
	first, err = strconv.ParseUint(low, 10, bits)
	last, err2 := strconv.ParseUint(high, 10, bits)
	if err := errors.Join(err, err2); err != nil {
		return 0, 0, err
	}
	if first > last {
		return 0, 0, errors.New("its end comes before its beginning")
	}
	return first, last, nil
}

func rangeOf[T interception.UID | interception.GID](first, last uint64) interception.RangeSet[T] {
	return interception.RangesOf(interception.Range[T]{First: T(first), Last: T(last)})
}

// parseMark parses a value and a mask. Without a mask it is the whole mark.
func parseMark(text string) (interception.MarkBits, error) {
	value, mask, masked := strings.Cut(text, "/")
	if !masked {
		mask = "0xffffffff"
	}
	v, err := strconv.ParseUint(value, 0, 32)
	m, err2 := strconv.ParseUint(mask, 0, 32)
	if err := errors.Join(err, err2); err != nil {
		return interception.MarkBits{}, err
	}
	bits := interception.MarkBits{Value: interception.Mark(v), Mask: interception.Mark(m)}
	if bits.Value&^bits.Mask != 0 || bits.IsEmpty() {
		return interception.MarkBits{}, fmt.Errorf("%s/%s: bits outside of the mask, or none", value, mask)
	}
	return bits, nil
}

// parseEndpoint parses an address with or without a port, as in DNAT and SNAT.
func parseEndpoint(text string) (netip.Addr, interception.Port, error) {
	if endpoint, err := netip.ParseAddrPort(text); err == nil && endpoint.Addr().Zone() == "" {
		return endpoint.Addr(), interception.Port(endpoint.Port()), nil
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return addr, 0, err
}

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

// tcpFlags decodes the flags to look at, and then those that are set.
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

func parseFlags(list string) (interception.TCPFlag, error) {
	if list == "NONE" {
		return 0, nil
	}
	return parseBits(list, interception.FlagFIN, interception.FlagURG)
}

func parseStates(list string) (interception.ConnState, error) {
	return parseBits(list, interception.StateNew, interception.StateUntracked)
}

// parseBits parses a list of words, each of which means one of the bits from first to last.
func parseBits[B interface {
	~uint8
	fmt.Stringer
}](list string, first, last B) (bits B, err error) {
	for word := range strings.SplitSeq(list, ",") {
		bit := first
		for bit <= last && strings.ToUpper(bit.String()) != word {
			bit <<= 1
		}
		if bit > last {
			return 0, errUnknown
		}
		bits |= bit
	}
	return bits, nil
}
