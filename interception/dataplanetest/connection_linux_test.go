// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"testing"
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
