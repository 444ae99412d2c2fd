// SPDX-License-Identifier: Apache-2.0

package goldencases

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/trace"
)

// errFlow means that sending packets cannot create a flow.
var errFlow = errors.New("no packets leave such a flow")

// setUp is the mark of the packets that create a flow. Nothing else leaves the pod meanwhile, and
// nothing comes back by lo: sockets do not answer.
const setUp = 0xf10

// flowTable gives each packet a zone and its flow a mark.
const flowTable = `table inet flows {
	chain zone-in { type filter hook prerouting priority -300; ct zone set %[1]d; }
	chain zone-out { type filter hook output priority -300; ct zone set %[1]d; }
	chain mark-in { type filter hook prerouting priority -150; ct mark set %[2]d; iifname lo drop; }
	chain mark-out { type filter hook output priority -150; ct mark set %[2]d; meta mark != %[3]d drop; }
}
`

// leave makes connection tracking of the case's pod, which has no plan yet, know the flow of a
// packet. It sends packets that may have preceded it.
func (c confirmation) leave(ctx context.Context, pod *dataplanetest.Pod, packet trace.Packet) error {
	flow, r := packet.Flow, recorder{pod}
	if flow.Untracked || flow.Original != (trace.Tuple{Src: flow.Reply.Dst, Dst: flow.Reply.Src}) {
		return fmt.Errorf("%w: %+v", errFlow, *flow)
	}
	if _, err := r.nft(ctx, fmt.Sprintf(flowTable, flow.Zone, uint32(flow.Mark), setUp), "-f", "-"); err != nil {
		return err
	}
	if err := pod.Do(func() error { // the packets have no sequence
		return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal", []byte("1"), 0)
	}); err != nil {
		return err
	}
	for _, p := range c.before(packet) {
		if _, err := pod.Inject(p); err != nil {
			return fmt.Errorf("%w: %w", errFlow, err)
		}
		// The next packet, and the removal of the table, must come after this one.
		if err := pod.Settle(ctx); err != nil {
			return err
		}
	}
	_, err := r.nft(ctx, "", "delete", "table", "inet", "flows")
	return err
}

// before returns the packets that create the flow of a packet.
func (c confirmation) before(packet trace.Packet) []trace.Packet {
	flow := packet.Flow
	opening := trace.Packet{From: c.origin(packet, flow.Original.Src), Protocol: packet.Protocol, Src: flow.Original.Src, Dst: flow.Original.Dst}
	answer := trace.Packet{From: c.origin(packet, flow.Reply.Src), Protocol: packet.Protocol, Src: flow.Reply.Src, Dst: flow.Reply.Dst}
	further := opening
	if packet.Protocol == interception.ProtocolTCP {
		answer.Flags, further.Flags = interception.FlagSYN|interception.FlagACK, interception.FlagACK
		if flow.Midstream {
			opening.Flags, answer.Flags = interception.FlagACK, interception.FlagACK
		}
	}
	if flow.Answered {
		return []trace.Packet{opening, answer, further}
	}
	return []trace.Packet{opening}
}

// origin returns where a packet of the same flow comes from.
func (c confirmation) origin(packet trace.Packet, src netip.AddrPort) trace.Origin {
	_, arrives := packet.From.(trace.Arrival)
	same := src == packet.Src
	here := src.Addr().IsLoopback() || slices.Contains(c.Pod.Addresses, src.Addr())
	if same && arrives || !same && !arrives && !here {
		return trace.Arrival{Link: "eth0"}
	}
	return trace.Socket{Mark: setUp, Transparent: true}
}

// answered reports whether connection tracking has seen packets of a flow in both directions
// (/proc/net/nf_conntrack).
func (r recorder) answered(flow trace.Flow) (answered bool, err error) {
	var text []byte
	if err := r.pod.Do(func() error {
		text, err = os.ReadFile("/proc/thread-self/net/nf_conntrack")
		return err
	}); err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		var words [4]string // of the original direction, which comes first
		for _, word := range strings.Fields(line) {
			for i, key := range []string{"src=", "dst=", "sport=", "dport="} {
				if value, found := strings.CutPrefix(word, key); found && words[i] == "" {
					words[i] = value
				}
			}
		}
		if isEndpoint(flow.Original.Src, words[0], words[2]) && isEndpoint(flow.Original.Dst, words[1], words[3]) {
			return !strings.Contains(line, "[UNREPLIED]"), nil
		}
	}
	return false, fmt.Errorf("connection tracking has no flow %+v", flow.Original)
}

func isEndpoint(e netip.AddrPort, addr, port string) bool {
	a, err := netip.ParseAddr(addr)
	return err == nil && a == e.Addr() && port == strconv.Itoa(int(e.Port()))
}
