// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"strings"
	"testing"
	"time"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	if status := s.Status(); status != (Status{}) {
		t.Errorf("before any proxy: %+v", status)
	}
	bad := dial(t, s)
	bad.send([]byte{8})
	bad.expectEnd()
	awaitEnd(t, s)
	if status := s.Status(); status.Err == nil || !status.Connected.IsZero() || !status.Lost.IsZero() {
		t.Errorf("after a connection without a hello: %+v", status)
	}
	before := time.Now()
	first := connect(t, s)
	status := s.Status()
	if status.Connections != 1 || status.Connected.Before(before) || !status.Lost.IsZero() {
		t.Errorf("with a proxy: %+v", status)
	}
	second := connect(t, s)
	if got := s.Status(); got.Connections != 2 || !got.Connected.After(status.Connected) {
		t.Errorf("with two proxies: %+v", got)
	}
	for _, p := range []*proxy{first, second} {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	awaitConnections(s, 0)
	if status := s.Status(); status.Connections != 0 || !status.Connected.IsZero() || status.Lost.Before(before) ||
		!strings.Contains(status.Err.Error(), "the proxy has closed it") {
		t.Errorf("without proxies again: %+v", status)
	}
}

// awaitEnd waits until a connection has ended.
func awaitEnd(t *testing.T, s *Server) {
	t.Helper()
	for {
		s.mu.Lock()
		ended, changed := s.ended, s.changed
		s.mu.Unlock()
		if ended != nil {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatal("no connection has ended")
		}
	}
}
