// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception/trace"
)

func TestParsePacket(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"tcp uid 1000 gid 1000 > 192.0.2.1:443",
		"udp uid 1000 gid 1000 10.244.0.2:5353 > 192.0.2.1:53",
		"tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080",
		"tcp flags fin,ack in eth0 [2001:db8::1]:40000 > [fd00::2]:8080",
		"tcp uid 1337 gid 1337 mark 0x539 > 192.0.2.1:443",
		"tcp flags ack uid 1337 gid 1337 mark 0x539 transparent 10.244.0.9:40000 > 10.244.0.2:8080",
		"tcp uid 1337 gid 1337 transparent 10.244.0.9:40000 > 10.244.0.2:8080",
	} {
		packet, err := trace.ParsePacket(line)
		if err != nil {
			t.Error(err)
		} else if got := packet.String(); got != line {
			t.Errorf("got %q, want %q", got, line)
		}
	}
}

func TestParsePacketRefuses(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"",
		"tcp uid 1000 gid 1000 192.0.2.1:443",
		"sctp uid 1000 gid 1000 > 192.0.2.1:443",
		"tcp in eth0 mark red 192.0.2.9:1 > 192.0.2.1:443",
		"tcp flags xmas uid 1000 gid 1000 > 192.0.2.1:443",
		"tcp flags ack, uid 1000 gid 1000 > 192.0.2.1:443",
		"tcp flags ack > 192.0.2.1:443",
		"tcp uid x gid 1000 > 192.0.2.1:443",
		"tcp uid 1000 gid x > 192.0.2.1:443",
		"tcp uid 1000 gid 1000 mark red > 192.0.2.1:443",
		"tcp uid 1000 gid 1000 transparent mark 0x1 > 192.0.2.1:443",
		"tcp uid 1000 gid 1000 10.244.0.2 > 192.0.2.1:443",
		"tcp uid 1000 gid 1000 > 192.0.2.1",
	} {
		if packet, err := trace.ParsePacket(line); !errors.Is(err, trace.ErrPacket) {
			t.Errorf("%q is read as %s, %v", line, packet, err)
		}
	}
}

func TestParsePacketNamesTheWords(t *testing.T) {
	t.Parallel()
	_, err := trace.ParsePacket("tcp uid 1 gid 1 10.0.0.1:1 twice > 192.0.2.1:443")
	if err == nil || !strings.Contains(err.Error(), `source: "10.0.0.1:1 twice" is not one address with a port`) {
		t.Errorf("got %v", err)
	}
}

// A parsed packet prints as text that parses to the same packet.
func FuzzParsePacket(f *testing.F) {
	f.Add("tcp flags syn,ack uid 1337 gid 1337 mark 0x539 transparent 10.244.0.9:40000 > 10.244.0.2:8080")
	f.Add("udp in eth0 [2001:db8::1]:53>[fd00::2]:8080")
	f.Fuzz(func(t *testing.T, line string) {
		packet, err := trace.ParsePacket(line)
		if err != nil {
			return
		}
		again, err := trace.ParsePacket(packet.String())
		if err != nil || again != packet {
			t.Errorf("%q is read as %q, and that as %q: %v", line, packet, again, err)
		}
	})
}
