// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestConnection(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	connect := func(p Probe) *Connection {
		t.Helper()
		c, err := pod.Connect(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	say := func(c *Connection, speaker Side, want Verdict) {
		t.Helper()
		if got, err := c.Say(t.Context(), speaker); got != want || err != nil {
			t.Errorf("%s, %s: %v, %v, want %v", c.Probe, speaker, got, err, want)
		}
	}
	out, in, within := connect(to("198.51.100.7:1001")), connect(to("10.244.1.10:8080").outside()), connect(to("[::1]:8080"))
	reset, lost := connect(to("198.51.100.7:1002")), connect(to("[2001:db8:7::7]:1003"))
	all := []*Connection{out, in, within, reset, lost}
	for _, c := range all {
		say(c, Opener, Accepted)
		say(c, Taker, Accepted)
	}
	pod.program(t, `
table inet filter {
	chain output {
		type filter hook output priority 0
		tcp dport 1002 reject with tcp reset
		tcp dport 1003 drop
	}
}`)
	for _, c := range all[:3] {
		say(c, Taker, Accepted)
		say(c, Opener, Accepted)
	}
	say(reset, Opener, Refused)
	say(lost, Opener, Dropped)
	say(reset, Opener, Refused)
}

// late is an end whose deadlines expire before it reads, as on a busy machine.
type late struct{ end }

func (l late) SetDeadline(time.Time) error { return l.end.SetDeadline(time.Unix(1, 0)) }

// TestHearsWhatIsThere has a hearer that comes too late to wait.
func TestHearsWhatIsThere(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	c, err := pod.Connect(t.Context(), to("[::1]:8080"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	opener, taker := c.ends[Opener], late{c.ends[Taker]}
	if heard, err := c.hear(t.Context(), taker, 4, 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing was said: heard %q, %v", heard, err)
	}
	if _, err := io.WriteString(opener, "said"); err != nil {
		t.Fatal(err)
	}
	awaitReadable(t, taker)
	if heard, err := c.hear(t.Context(), taker, 4, 0); err != nil || string(heard) != "said" {
		t.Errorf("heard %q, %v", heard, err)
	}
	if err := opener.Close(); err != nil {
		t.Fatal(err)
	}
	awaitReadable(t, taker)
	heard, err := c.hear(t.Context(), taker, 4, 0)
	if verdict, _ := broken(err); verdict != Refused {
		t.Errorf("the opener has closed: heard %q, %v", heard, err)
	}
}

// awaitReadable waits until the kernel has something for an end.
func awaitReadable(t *testing.T, at syscall.Conn) {
	t.Helper()
	raw, err := at.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var polled error = unix.EINTR
	if err := raw.Control(func(fd uintptr) {
		for errors.Is(polled, unix.EINTR) {
			_, polled = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		}
	}); err != nil || polled != nil {
		t.Fatal(err, polled)
	}
}

func TestConnectRefuses(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	for name, probe := range map[string]Probe{"nothing": {}, "udp": to("198.51.100.7:53").udp(), "past the pod": to("198.51.100.7:1").outside()} {
		if c, err := pod.Connect(t.Context(), probe); !errors.Is(err, ErrProbe) || c != nil {
			t.Errorf("%s: %v, %v, want %v", name, c, err, ErrProbe)
		}
	}
	if c, err := pod.Connect(t.Context(), to("127.0.0.1:81")); err == nil || c != nil {
		t.Errorf("nobody listens: %v, %v", c, err)
	}
}

// TestPortsAreOfConnect checks that the ports of probes are even: a proxy that binds to its
// client's address has an odd one.
func TestPortsAreOfConnect(t *testing.T) {
	t.Parallel()
	pod := newPod(t)
	own, foreign := to("10.244.1.10:8080").outside(), to("[fd00:10:244:1::a]:8080").outside()
	foreign.Src = netip.MustParseAddr("2001:db8::9")
	for _, probe := range []Probe{own, foreign, to("198.51.100.7:1001")} {
		c, err := pod.Connect(t.Context(), probe)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if c.Local.Port()%2 != 0 || c.Local != c.Observation.Peer {
			t.Errorf("%s: connected from %s, and arrived from %s, want an even port", probe, c.Local, c.Observation.Peer)
		}
	}
}
