// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/interception/trace"
)

// TestInject counts with nft rules packets that no socket sends.
func TestInject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ hook, rule, packet string }{
		"a port of its own":   {"input", "ip saddr 10.244.1.10 udp sport 53 udp dport 81", "udp uid 0 gid 0 10.244.1.10:53 > 127.0.0.1:81"},
		"a listener's port":   {"output", "udp sport 15053 oifname eth0", "udp uid 0 gid 0 10.244.1.10:15053 > 198.51.100.7:53"},
		"flags":               {"input", "tcp flags == fin tcp dport 8080", "tcp flags fin uid 0 gid 0 > 127.0.0.1:8080"},
		"flags, IPv6":         {"input", "ip6 daddr ::1 tcp flags == rst", "tcp flags rst uid 0 gid 0 > [::1]:8080"},
		"a mark":              {"output", "meta mark 7 tcp flags == syn", "tcp uid 0 gid 0 mark 7 > 198.51.100.7:80"},
		"an owner":            {"output", "meta skuid 1337 udp dport 53", "udp uid 1337 gid 0 > 198.51.100.7:53"},
		"somebody's name":     {"output", "ip saddr 203.0.113.7 tcp dport 80", "tcp uid 0 gid 0 transparent 203.0.113.7:0 > 198.51.100.7:80"},
		"from elsewhere":      {"input", "ip saddr 192.0.2.9 tcp sport 40000", "tcp in eth0 192.0.2.9:40000 > 10.244.1.10:8080"},
		"to somebody else":    {"prerouting", "ip daddr 203.0.113.7", "tcp in eth0 192.0.2.9:40000 > 203.0.113.7:80"},
		"to elsewhere":        {"prerouting", "ip6 daddr 2001:db8::1 udp dport 80", "udp in eth0 [2001:db8::9]:40000 > [2001:db8::1]:80"},
		"from a loopback":     {"prerouting", "iifname eth0 ip saddr 127.0.0.53", "udp in eth0 127.0.0.53:53 > 10.244.1.10:8080"},
		"a state of tracking": {"input", "ct state invalid tcp flags == fin", "tcp flags fin in eth0 192.0.2.9:40000 > 10.244.1.10:8080"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := newPod(t)
			pod.program(t, "table inet count { chain c { type filter hook "+test.hook+" priority 0; "+test.rule+" counter; }; }")
			packet, err := trace.ParsePacket(test.packet)
			if err != nil {
				t.Fatal(err)
			}
			src, err := pod.Inject(packet)
			if errors.Is(err, ErrNeedsSecondUID) {
				t.Skip(err)
			}
			if err != nil || packet.Src.IsValid() && src.Addr() != packet.Src.Addr() || packet.Src.Port() != 0 && src.Port() != packet.Src.Port() {
				t.Fatalf("from %s, %v", src, err)
			}
			if err := pod.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if rules := pod.listed(t); !strings.Contains(rules, "counter packets 1 ") {
				t.Errorf("the packet was not counted\n%s", rules)
			}
		})
	}
}

// listed returns the pod's rules.
func (p *Pod) listed(t *testing.T) string {
	t.Helper()
	var output []byte
	if err := p.Do(func() (err error) {
		output, err = exec.CommandContext(t.Context(), "nft", "list", "ruleset").Output()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return string(output)
}

func TestInjectRefuses(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	known := out("198.51.100.7:443")
	known.Flow = &trace.Flow{}
	if _, err := pod.Inject(known); !errors.Is(err, ErrProbe) {
		t.Errorf("a packet of a flow: %v, want %v", err, ErrProbe)
	}
	// A loopback address does not leave by a link.
	astray := out("198.51.100.7:443")
	astray.Src = netip.MustParseAddrPort("127.0.0.1:0")
	if _, err := pod.Inject(astray); !errors.As(err, new(syscall.Errno)) {
		t.Errorf("a packet without a way: %v", err)
	}
}
