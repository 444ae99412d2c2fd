// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadyz(t *testing.T) {
	t.Parallel()
	state := NewState("binaries", "config")
	handler := state.Handler()
	wantAnswer(t, handler, "/readyz", 503, "not ready\nbinaries: starting\nconfig: starting\n")
	state.Set("config", "waiting for a network")
	state.Set("binaries", "")
	wantAnswer(t, handler, "/readyz", 503, "not ready\nconfig: waiting for a network\n")
	wantAnswer(t, handler, "/healthz", 200, "ok\n")
	state.Set("config", "")
	wantAnswer(t, handler, "/readyz", 200, "ok\n")
	state.Set("watch", "no more watches")
	wantAnswer(t, handler, "/readyz", 503, "not ready\nwatch: no more watches\n")
}

func TestOtherRequests(t *testing.T) {
	t.Parallel()
	handler := NewState().Handler()
	wantAnswer(t, handler, "/readyz", 200, "ok\n")
	wantAnswer(t, handler, "/", 404, "404 page not found\n")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/readyz", nil))
	if recorder.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", recorder.Code)
	}
}

func TestSetTellsNews(t *testing.T) {
	t.Parallel()
	state := NewState("a")
	var got []bool
	for _, reason := range []string{"starting", "broken", "broken", "", ""} {
		got = append(got, state.Set("a", reason))
	}
	if diff := cmp.Diff([]bool{false, true, false, true, false}, got); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
}

func TestServeUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- Serve(ctx, listener, NewState().Handler()) }()
	response, err := http.Get("http://" + listener.Addr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || string(body) != "ok\n" || response.Body.Close() != nil {
		t.Errorf("answer %d %q, %v", response.StatusCode, body, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		t.Error("the port is still open")
	}
}

func TestServeSaysThatItCannot(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), listener, NewState().Handler()); err == nil {
		t.Error("no error for a closed listener")
	}
}

func wantAnswer(t *testing.T, handler http.Handler, path string, status int, body string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	if recorder.Code != status || recorder.Body.String() != body {
		t.Errorf("GET %s = %d %q, want %d %q", path, recorder.Code, recorder.Body, status, body)
	}
}
