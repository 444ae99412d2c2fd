// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// ParsePacket parses the form that [Packet.String] prints, for command lines and golden files:
//
//	tcp uid 1000 gid 1000 > 192.0.2.1:443                        from a socket, by its user and group
//	tcp uid 1337 gid 1337 127.0.0.6:40000 > 10.244.0.2:8080      with a source of its own
//	tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080                from a link
//	icmp uid 1000 gid 1000 > 192.0.2.1:0                         an echo request
//
// "mark 0x539" may follow a socket's ids or a link, and "transparent" a socket's; "flags syn,ack"
// may follow TCP. The packet may still be impossible in a certain world: [Trace] reports that.
// The error wraps [ErrPacket].
func ParsePacket(line string) (Packet, error) {
	head, tail, found := strings.Cut(line, ">")
	words := strings.Fields(head)
	if !found || len(words) < 3 {
		return Packet{}, fmt.Errorf("%w %q: want protocol, origin, [source] > destination", ErrPacket, line)
	}
	packet, rest := Packet{}, words[1:]
	var err error
	if packet.Protocol, err = parseProtocol(words[0]); err == nil {
		packet.Flags, rest, err = parseFlags(rest)
	}
	if err == nil {
		packet.From, rest, err = parseOrigin(rest)
	}
	if err != nil {
		return Packet{}, fmt.Errorf("%w %q: %w", ErrPacket, line, err)
	}
	if len(rest) == 1 {
		packet.Src, err = netip.ParseAddrPort(rest[0])
	} else if len(rest) > 1 {
		err = fmt.Errorf("%q is not one address with a port: nothing else goes before the \">\"", strings.Join(rest, " "))
	}
	if err != nil {
		return Packet{}, fmt.Errorf("%w %q: source: %w", ErrPacket, line, err)
	}
	if packet.Dst, err = netip.ParseAddrPort(strings.TrimSpace(tail)); err != nil {
		return Packet{}, fmt.Errorf("%w %q: destination: %w", ErrPacket, line, err)
	}
	return packet, nil
}

func parseProtocol(word string) (interception.Protocol, error) {
	switch word {
	case "tcp":
		return interception.ProtocolTCP, nil
	case "udp":
		return interception.ProtocolUDP, nil
	case "icmp":
		return ICMP, nil
	default:
		return 0, fmt.Errorf("%q is not a protocol: write tcp, udp or icmp", word)
	}
}

// parseFlags parses an optional "flags syn,ack" and returns the remaining words.
func parseFlags(words []string) (interception.TCPFlag, []string, error) {
	if len(words) < 2 || words[0] != "flags" {
		return 0, words, nil
	}
	var flags interception.TCPFlag
	for word := range strings.SplitSeq(words[1], ",") {
		flag := interception.FlagFIN
		for flag.String() != word && flag <= interception.FlagURG {
			flag <<= 1
		}
		if flag > interception.FlagURG {
			return 0, nil, fmt.Errorf("%q is not a flag of TCP", word)
		}
		flags |= flag
	}
	return flags, words[2:], nil
}

// parseOrigin parses "uid N gid N [mark N] [transparent]" or "in LINK [mark N]" and returns the
// remaining words.
func parseOrigin(words []string) (Origin, []string, error) {
	switch {
	case len(words) >= 2 && words[0] == "in":
		mark, rest, err := parseMark(words[2:])
		return Arrival{Link: interception.Interface(words[1]), Mark: mark}, rest, err
	case len(words) >= 4 && words[0] == "uid" && words[2] == "gid":
		return parseSocket(words)
	default:
		return nil, nil, fmt.Errorf("%q is not an origin: write \"uid N gid N\" or \"in LINK\"", strings.Join(words, " "))
	}
}

func parseSocket(words []string) (Origin, []string, error) {
	uid, err := parseNumber("uid", words[1])
	if err != nil {
		return nil, nil, err
	}
	gid, err := parseNumber("gid", words[3])
	if err != nil {
		return nil, nil, err
	}
	socket, rest := Socket{UID: interception.UID(uid), GID: interception.GID(gid)}, words[4:]
	if socket.Mark, rest, err = parseMark(rest); err != nil {
		return nil, nil, err
	}
	if len(rest) >= 1 && rest[0] == "transparent" {
		socket.Transparent, rest = true, rest[1:]
	}
	return socket, rest, nil
}

// parseMark parses an optional "mark N" and returns the remaining words.
func parseMark(words []string) (interception.Mark, []string, error) {
	if len(words) < 2 || words[0] != "mark" {
		return 0, words, nil
	}
	mark, err := parseNumber("mark", words[1])
	return interception.Mark(mark), words[2:], err
}

// parseNumber parses a 32-bit number in Go's notation.
func parseNumber(name, word string) (uint32, error) {
	number, err := strconv.ParseUint(word, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a number from 0 to 4294967295", name, word)
	}
	return uint32(number), nil
}
