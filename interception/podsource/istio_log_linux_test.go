// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

func logEntries() []podsource.LogEntry {
	at := time.Date(2026, 11, 21, 13, 0, 0, 5, time.FixedZone("", 3600))
	return []podsource.LogEntry{
		{Time: at, Level: slog.LevelDebug, Message: "a \"b\"", Attributes: map[string]string{"pod": "shop/web-0", "level": "mine"}},
		{Time: at, Level: slog.LevelInfo, Message: "i"},
		{Time: at, Level: slog.LevelWarn + 1, Message: "w"},
		{Time: at, Level: slog.LevelError + 4, Message: "e"},
	}
}

// istioAgent keeps the body of what comes to log.sock.
func istioAgent(t *testing.T, dir string, status int) <-chan string {
	t.Helper()
	bodies := make(chan string, 1)
	fakeAgent(t, dir, "log.sock", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/log" || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s %s, %v, %v", r.Method, r.URL, r.Header, err)
		}
		bodies <- string(data)
		w.WriteHeader(status)
	})
	return bodies
}

func TestLogToIstiosAgent(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"alone": func(*testing.T, string) {},
		"after a socket that a later agent left": func(t *testing.T, dir string) {
			t.Helper()
			listener, err := agentserver.Listen(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			_ = listener.Close()
		},
		"beside an agent that takes no logs": func(t *testing.T, dir string) { t.Helper(); serve(t, dir, agentserver.Server{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runDir(t)
			prepare(t, dir)
			bodies := istioAgent(t, dir, http.StatusOK)
			if err := agentFor(dir).Log(t.Context(), logEntries()); err != nil {
				t.Fatal(err)
			}
			var lines []string
			if err := json.Unmarshal([]byte(<-bodies), &lines); err != nil {
				t.Fatal(err)
			}
			const rest = `","scope":"cni-plugin","time":"2026-11-21T12:00:00.000000005Z"}`
			if diff := cmp.Diff([]string{
				`{"level":"debug","msg":"a \"b\"","pod":"shop/web-0","scope":"cni-plugin","time":"2026-11-21T12:00:00.000000005Z"}`,
				`{"level":"info","msg":"i` + rest,
				`{"level":"warn","msg":"w` + rest,
				`{"level":"error","msg":"e` + rest,
			}, lines); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLogPrefersTheAgentsProtocol(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	d := &daemon{}
	serve(t, dir, d.server())
	fakeAgent(t, dir, "log.sock", func(http.ResponseWriter, *http.Request) { t.Error("log.sock was used") })
	if err := agentFor(dir).Log(t.Context(), logEntries()); err != nil || len(d.entries) != 4 {
		t.Errorf("got %d entries, %v", len(d.entries), err)
	}
}

func TestLogToNobody(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	wantFailure(t, agentFor(dir).Log(t.Context(), logEntries()), podsource.ErrUnreachable, "node agent cannot be reached (unix:"+dir+"/agent.sock): ")

	<-func() <-chan string {
		bodies := istioAgent(t, dir, http.StatusInternalServerError)
		err := agentFor(dir).Log(t.Context(), logEntries())
		wantFailure(t, err, podsource.ErrUnreachable, "agent.sock): ")
		wantFailure(t, err, podsource.ErrAnswer, "log.sock): status 500; see whether it is the node agent")
		return bodies
	}()
}
