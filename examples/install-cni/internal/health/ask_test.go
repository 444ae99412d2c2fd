// SPDX-License-Identifier: Apache-2.0

package health

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAsk(t *testing.T) {
	t.Parallel()
	state := NewState("binaries", "config")
	state.Set("binaries", "")
	dial := (&net.Dialer{}).DialContext
	server := httptest.NewServer(state.Handler())
	defer server.Close()
	address := server.Listener.Addr().String()
	if got, err := Ask(t.Context(), dial, address); err != nil || got.Ready || !got.Healthy || len(got.Parts) != 2 || got.Parts[1].Reason != "starting" {
		t.Errorf("a node that is not ready: %+v, %v", got, err)
	}
	state.Set("config", "")
	if got, err := Ask(t.Context(), dial, address); err != nil || !got.Ready {
		t.Errorf("a node that is ready: %+v, %v", got, err)
	}
	for name, handler := range map[string]http.HandlerFunc{
		"text":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) },
		"nothing": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) },
	} {
		stranger := httptest.NewServer(handler)
		if got, err := Ask(t.Context(), dial, stranger.Listener.Addr().String()); err == nil || !strings.Contains(err.Error(), "another program listens") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		stranger.Close()
		if got, err := Ask(t.Context(), dial, stranger.Listener.Addr().String()); err == nil {
			t.Errorf("no program: %+v", got)
		}
	}
}
