// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"testing"
	"time"
)

// TestConnectionsWithoutHello has programs connect one after the other that are no proxies, without
// a pause: no caller that waits for a pod is woken, and they are not accepted all at once.
func TestConnectionsWithoutHello(t *testing.T) {
	t.Parallel()
	o, events := observed()
	s := begin(t, o)
	set(t, s, "a")
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	const connections = 50
	begun := time.Now()
	for range connections {
		if err := dial(t, s).Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range connections {
		if e := <-events; e.Connection != 0 || e.Err == nil {
			t.Errorf("%+v, want the end of a connection without a hello", e)
		}
	}
	if took, least := time.Since(begun), (connections-1)*between; took < least {
		t.Errorf("%d connections were accepted within %s, want at least %s", connections, took, least)
	}
	select {
	case <-changed:
		t.Error("a caller that waits for a pod is woken")
	default:
	}
	connect(t, s, "a") // a proxy comes
}
