// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestRelayedWithin has a process of the pod pass a connection on to the application, and hold the
// answer back for longer than DropAfter.
func TestRelayedWithin(t *testing.T) {
	t.Parallel()
	for want, within := range map[bool]time.Duration{false: 0, true: time.Minute} {
		pod := NewPod(t, PodOptions{Ports: []uint16{8080}, DropAfter: 50 * time.Millisecond, RelayedWithin: within})
		held := make(chan struct{})
		relay(t, pod, held)
		if want {
			time.AfterFunc(4*50*time.Millisecond, func() { close(held) })
		}
		seen, err := pod.Send(t.Context(), Probe{From: Elsewhere, Dst: netip.MustParseAddrPort("10.244.1.10:9000")})
		if err != nil || seen.Verdict != Accepted || seen.Port != 8080 || seen.Answered != want {
			t.Errorf("%s: %s, %v, answered %t, want %t", within, seen, err, seen.Answered, want)
		}
		if !want {
			close(held)
		}
	}
}

// relay passes one connection at port 9000 of the pod on to port 8080, and what comes back once
// held is closed.
func relay(t *testing.T, pod *Pod, held <-chan struct{}) {
	t.Helper()
	inside := pod.network.pod.namespace
	var listener net.Listener
	if err := inside.Do(func() (err error) {
		listener, err = net.Listen("tcp", "10.244.1.10:9000")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		from, err := listener.Accept()
		if err != nil {
			return // closed
		}
		var to net.Conn
		if err := inside.Do(func() (err error) {
			to, err = net.Dial("tcp", "10.244.1.10:8080")
			return err
		}); err != nil {
			t.Error(err)
			return
		}
		go func() { _, _ = io.Copy(to, from) }() // until the sender closes
		<-held
		_, _ = io.Copy(from, to)
		_, _ = from.Close(), to.Close()
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
}
