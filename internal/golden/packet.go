// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// ParsePacket reads a packet as trace.Packet prints it: "tcp uid 1000 gid 1000 > 192.0.2.1:443" from a socket, which may name
// its source before the ">", or "tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080" from a link. A socket may have "mark 0x539" and
// "transparent" behind its ids, TCP "flags ack" behind its name.
func ParsePacket(line string) (trace.Packet, error) {
	head, tail, found := strings.Cut(line, ">")
	words := strings.Fields(head)
	if !found || len(words) < 3 {
		return trace.Packet{}, fmt.Errorf("packet %q: want protocol, origin, [source] > destination", line)
	}
	packet := trace.Packet{}
	var err error
	if packet.Protocol, err = parseProtocol(words[0]); err != nil {
		return trace.Packet{}, fmt.Errorf("packet %q: %w", line, err)
	}
	rest := words[1:]
	if packet.Flags, rest, err = parseFlags(rest); err != nil {
		return trace.Packet{}, fmt.Errorf("packet %q: %w", line, err)
	}
	if packet.From, rest, err = parseOrigin(rest); err != nil {
		return trace.Packet{}, fmt.Errorf("packet %q: %w", line, err)
	}
	if len(rest) == 1 {
		packet.Src, err = netip.ParseAddrPort(rest[0])
	} else if len(rest) > 1 {
		err = fmt.Errorf("%q is too much", rest)
	}
	if err != nil {
		return trace.Packet{}, fmt.Errorf("packet %q: source: %w", line, err)
	}
	if packet.Dst, err = netip.ParseAddrPort(strings.TrimSpace(tail)); err != nil {
		return trace.Packet{}, fmt.Errorf("packet %q: destination: %w", line, err)
	}
	return packet, nil
}

func parseProtocol(word string) (interception.Protocol, error) {
	switch word {
	case "tcp":
		return interception.ProtocolTCP, nil
	case "udp":
		return interception.ProtocolUDP, nil
	default:
		return 0, fmt.Errorf("%q is no protocol: write tcp or udp", word)
	}
}

// parseFlags reads "flags syn,ack", where it is there, and returns the words behind it.
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
			return 0, nil, fmt.Errorf("%q is no flag of TCP", word)
		}
		flags |= flag
	}
	return flags, words[2:], nil
}

// parseOrigin reads "uid N gid N [mark N] [transparent]" or "in LINK" and returns the words behind it.
func parseOrigin(words []string) (trace.Origin, []string, error) {
	switch {
	case len(words) >= 2 && words[0] == "in":
		return trace.Arrival{Link: interception.Interface(words[1])}, words[2:], nil
	case len(words) >= 4 && words[0] == "uid" && words[2] == "gid":
		return parseSocket(words)
	default:
		return nil, nil, fmt.Errorf("%q is no origin: write \"uid N gid N\" or \"in LINK\"", strings.Join(words, " "))
	}
}

func parseSocket(words []string) (trace.Origin, []string, error) {
	uid, err := strconv.ParseUint(words[1], 10, 32)
	if err != nil {
		return nil, nil, err
	}
	gid, err := strconv.ParseUint(words[3], 10, 32)
	if err != nil {
		return nil, nil, err
	}
	socket, rest := trace.Socket{UID: interception.UID(uid), GID: interception.GID(gid)}, words[4:]
	if len(rest) >= 2 && rest[0] == "mark" {
		mark, err := strconv.ParseUint(rest[1], 0, 32)
		if err != nil {
			return nil, nil, err
		}
		socket.Mark, rest = interception.Mark(mark), rest[2:]
	}
	if len(rest) >= 1 && rest[0] == "transparent" {
		socket.Transparent, rest = true, rest[1:]
	}
	return socket, rest, nil
}
