// SPDX-License-Identifier: Apache-2.0

package goldencases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/trace"
)

// recorder is an nft table that comes after all others of a pod and records what reaches sockets
// and what leaves by a link: addresses, mark and, of a flow, mark and zone. It makes connection
// tracking see everything, as package trace assumes.
type recorder struct{ pod *dataplanetest.Pod }

// The hooks that packets come through last.
const (
	toSocket = "input"
	toLink   = "postrouting"
)

// passing is a packet in its last hook.
type passing struct {
	hook     string
	protocol interception.Protocol
	header   trace.Header
	// transparent reports whether it reaches a transparent socket, including by TPROXY.
	transparent bool
	tracked     bool
	zone        uint16
	connmark    interception.Mark
}

// recorderTable records, for each hook, protocol and family, the values that can be keys of a set,
// and the zone by way of the mark, which no later rule reads.
const recorderTable = `
	set HOOK-PROTO-ADDR-mark { type ADDR_addr . inet_service . ADDR_addr . inet_service . mark; flags dynamic; size 4096; }
	set HOOK-PROTO-ADDR-connmark { type ADDR_addr . inet_service . ADDR_addr . inet_service . mark; flags dynamic; size 4096; }
	set HOOK-PROTO-ADDR-zone { type ADDR_addr . inet_service . ADDR_addr . inet_service . mark; flags dynamic; size 4096; }
	set HOOK-PROTO-ADDR-transparent { type ADDR_addr . inet_service . ADDR_addr . inet_service . mark; flags dynamic; size 4096; }
	chain HOOK-PROTO-ADDR {
		type filter hook HOOK priority 500
		meta nfproto != ADDR accept
		meta l4proto != PROTO accept
		oifname lo accept
		add @HOOK-PROTO-ADDR-mark { IP saddr . PROTO sport . IP daddr . PROTO dport . meta mark }
		add @HOOK-PROTO-ADDR-connmark { IP saddr . PROTO sport . IP daddr . PROTO dport . ct mark }
		SOCKETadd @HOOK-PROTO-ADDR-transparent { IP saddr . PROTO sport . IP daddr . PROTO dport . meta mark }
		meta mark set ct zone
		ct state new,established,related add @HOOK-PROTO-ADDR-zone { IP saddr . PROTO sport . IP daddr . PROTO dport . meta mark }
	}
`

// newRecorder loads the table into the pod.
func newRecorder(ctx context.Context, pod *dataplanetest.Pod) (recorder, error) {
	r := recorder{pod}
	script := "table inet recorder {\n"
	// Packets that are sent have no receiving socket.
	for hook, socket := range map[string]string{toSocket: "socket transparent 1 ", toLink: "iifname lo "} {
		for _, protocol := range []string{"tcp", "udp"} {
			for family, addr := range map[string]string{"ip": "ipv4", "ip6": "ipv6"} {
				script += strings.NewReplacer("HOOK", hook, "PROTO", protocol, "ADDR", addr, "IP", family, "SOCKET", socket).Replace(recorderTable)
			}
		}
	}
	_, err := r.nft(ctx, script+"}\n", "-f", "-")
	return r, err
}

// nft runs nft in the pod.
func (r recorder) nft(ctx context.Context, script string, args ...string) ([]byte, error) {
	var output, errs bytes.Buffer
	command := exec.CommandContext(ctx, "nft", args...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(script), &output, &errs
	if err := r.pod.Do(command.Run); err != nil {
		return nil, fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return output.Bytes(), nil
}

// listed is the part of nft's answer (libnftables-json(5)) that is read: elements of five keys.
type listed struct {
	Nftables []struct {
		Set *struct {
			Name string
			Elem []struct{ Concat [5]any }
		}
	}
}

// noted is a packet with notes.
type noted struct {
	hook     string
	protocol interception.Protocol
	src, dst netip.AddrPort
}

// seen returns everything that has come through.
func (r recorder) seen(ctx context.Context) ([]passing, error) {
	text, err := r.nft(ctx, "", "-j", "list", "table", "inet", "recorder")
	if err != nil {
		return nil, err
	}
	var list listed
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("list what passed: %w", err)
	}
	notes := map[noted]map[string][]uint32{}
	for _, object := range list.Nftables {
		if object.Set == nil {
			continue
		}
		for _, element := range object.Set.Elem {
			if err := note(notes, object.Set.Name, element.Concat); err != nil {
				return nil, fmt.Errorf("element %v of %s: %w", element.Concat, object.Set.Name, err)
			}
		}
	}
	var all []passing
	for k, of := range notes {
		all = append(all, k.passings(of)...)
	}
	return all, nil
}

// note adds an element of a set; the set's name has hook, protocol, family and kind of note.
func note(notes map[noted]map[string][]uint32, set string, element [5]any) error {
	words := strings.Split(set, "-")
	k := noted{hook: words[0], protocol: interception.ProtocolTCP}
	if words[1] == "udp" {
		k.protocol = interception.ProtocolUDP
	}
	var err, err2 error
	k.src, err = endpoint(element[0], element[1])
	k.dst, err2 = endpoint(element[2], element[3])
	value, ok := element[4].(float64)
	if err := errors.Join(err, err2); err != nil || !ok {
		return fmt.Errorf("no packet: %w", err)
	}
	if notes[k] == nil {
		notes[k] = map[string][]uint32{}
	}
	notes[k][words[3]] = append(notes[k][words[3]], uint32(value))
	return nil
}

// passings returns the packets that the notes may describe: several can have the same addresses.
func (n noted) passings(of map[string][]uint32) []passing {
	var all []passing
	for _, mark := range of["mark"] {
		p := passing{hook: n.hook, protocol: n.protocol, header: trace.Header{Src: n.src, Dst: n.dst, Mark: interception.Mark(mark)}}
		p.transparent = slices.Contains(of["transparent"], mark)
		if len(of["zone"]) == 0 {
			all = append(all, p)
		}
		for _, zone := range of["zone"] {
			for _, connmark := range of["connmark"] {
				p.tracked, p.zone, p.connmark = true, uint16(zone), interception.Mark(connmark)
				all = append(all, p)
			}
		}
	}
	return all
}

// endpoint is an address with its port.
func endpoint(addr, port any) (netip.AddrPort, error) {
	text, _ := addr.(string)
	number, ok := port.(float64)
	a, err := netip.ParseAddr(text)
	if err == nil && !ok {
		err = fmt.Errorf("port %v is not a number", port)
	}
	return netip.AddrPortFrom(a, uint16(number)), err
}
