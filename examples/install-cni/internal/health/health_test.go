// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

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
	state.Auxiliary("metrics")
	wantAnswer(t, handler, "/readyz", 200, "ok\n")
	state.Set("watch", "no more watches")
	wantAnswer(t, handler, "/readyz", 503, "not ready\nwatch: no more watches\n")
}

func TestHealthz(t *testing.T) {
	t.Parallel()
	state := NewState("socket")
	handler := state.Handler()
	state.Failed("socket", "broken", "")
	wantAnswer(t, handler, "/healthz", 200, "ok\n")
	state.Failed("socket", "no files left", "too many files are open")
	wantAnswer(t, handler, "/healthz", 503, "not healthy\nsocket: too many files are open\n")
	state.Set("socket", "")
	wantAnswer(t, handler, "/healthz", 200, "ok\n")
}

func TestVerbose(t *testing.T) {
	t.Parallel()
	state := NewState("binaries", "config")
	state.Set("binaries", "")
	state.Failed("config", "a \"b\"", "")
	state.Contest("binaries", "somebody")
	state.Auxiliary("metrics")
	for path, status := range map[string]int{"/readyz?verbose": 503, "/healthz?verbose=": 200} {
		recorder := httptest.NewRecorder()
		state.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		var got Report
		if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil || recorder.Code != status {
			t.Errorf("GET %s = %d %s, %v", path, recorder.Code, recorder.Body, err)
		}
		for i := range got.Parts {
			if got.Parts[i].Since.IsZero() {
				t.Errorf("%s: no time", got.Parts[i].Part)
			}
			got.Parts[i].Since = time.Time{}
		}
		want := Report{Healthy: true, Parts: []Condition{
			{Part: "binaries", Ready: true, Contested: "somebody"},
			{Part: "config", Reason: `a "b"`, Restarts: 1},
			{Part: "metrics", Reason: "starting", Auxiliary: true},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("GET %s (-want +got):\n%s", path, diff)
		}
	}
}

func TestTellsNews(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	state := NewState("a", "b")
	state.LogTo(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	for _, set := range [][2]string{{"a", ""}, {"b", "broken"}, {"b", ""}, {"b", ""}, {"a", "again"}} {
		state.Set(set[0], set[1])
	}
	want := "level=INFO msg=\"not ready\" reasons=\"b: starting\"\nlevel=INFO msg=ready\nlevel=INFO msg=\"not ready\" reasons=\"a: again\"\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
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
	if !response.Close {
		t.Error("who asked may keep the connection")
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

func TestAwaitReady(t *testing.T) {
	t.Parallel()
	s := NewState("a", "b")
	s.Auxiliary("b")
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.AwaitReady(ended); err == nil {
		t.Error("it is ready")
	}
	ready := make(chan error)
	go func() { ready <- s.AwaitReady(t.Context()) }()
	s.Set("a", "broken")
	s.Set("a", "")
	if err := <-ready; err != nil {
		t.Error(err)
	}
	if err := s.AwaitReady(ended); err != nil {
		t.Errorf("a node that is ready: %v", err)
	}
}

// TestLook: a part reports that it is ready while a check finds that it is not.
func TestLook(t *testing.T) {
	t.Parallel()
	state := NewState("socket", "watch")
	reason, asked := "no program answers", 0
	state.Check("socket", func(context.Context) string { asked++; return reason })
	handler := state.Handler()
	state.Set("watch", "")
	wantAnswer(t, handler, "/readyz", 503, "not ready\nsocket: starting\n")
	if asked != 0 {
		t.Error("a part that isn't ready was checked")
	}
	state.Set("socket", "")
	if got := state.Reasons(); got != nil {
		t.Errorf("before it was asked: %v", got)
	}
	wantAnswer(t, handler, "/readyz", 503, "not ready\nsocket: no program answers\n")
	wantAnswer(t, handler, "/healthz", 200, "ok\n")
	reason = ""
	wantAnswer(t, handler, "/readyz", 200, "ok\n")
	reason = "another answers"
	wantAnswer(t, handler, "/readyz", 503, "not ready\nsocket: another answers\n")
	state.Set("socket", "")
	if got := state.Reasons(); got != nil || asked != 3 {
		t.Errorf("after it has spoken again: %v, asked %d times", got, asked)
	}
}

// TestALookEnds: a check does not return.
func TestALookEnds(t *testing.T) {
	t.Parallel()
	for within, want := range map[time.Duration]time.Duration{0: time.Second / 2, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			state := NewState("socket")
			state.LookWithin = within
			state.Set("socket", "")
			state.Check("socket", func(ctx context.Context) string { <-ctx.Done(); return "no answer" })
			began := time.Now()
			state.Look(t.Context())
			if took := time.Since(began); took != want || len(state.Reasons()) != 1 {
				t.Errorf("after %v, want %v: %v", took, want, state.Reasons())
			}
		})
	}
}

// TestOneLookAtATime: many concurrent requests cost one round trip, and no caller waits longer than
// its context.
func TestOneLookAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		state := NewState("socket")
		state.Set("socket", "")
		resume, asked := make(chan struct{}), 0
		state.Check("socket", func(context.Context) string {
			asked++
			<-resume
			return "slow"
		})
		impatient, leave := context.WithCancel(t.Context())
		go state.Look(t.Context())
		for range 8 {
			go state.Look(impatient)
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		if got := state.Reasons(); got != nil {
			t.Errorf("before the look is over: %v", got)
		}
		close(resume)
		synctest.Wait()
		if got := state.Reasons(); len(got) != 1 || asked != 1 {
			t.Errorf("got %v, asked %d times", got, asked)
		}
	})
}
