// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"strings"
	"testing"
	"time"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	o, events := observed()
	s := begin(t, o)
	if status := s.Status(); status != (Status{}) {
		t.Errorf("before any proxy: %+v", status)
	}
	bad := dial(t, s)
	bad.send([]byte{8})
	bad.expectEnd()
	<-events // told when the server has noted it
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
