// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
	"github.com/meshcni/meshcni/internal/spool"
)

// istioLog takes log lines by Istio's protocol.
type istioLog struct {
	mu      sync.Mutex
	entries []podsource.LogEntry
	errors  []string
	err     error // of the sink
}

func (l *istioLog) Log(_ context.Context, entries []podsource.LogEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entries...)
	return l.err
}

func (l *istioLog) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, err.Error())
}

func (l *istioLog) serve(t *testing.T, dir string) {
	t.Helper()
	listener, err := agentserver.ListenIstioLog(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agentserver.IstioLogServer{Logs: l, OnError: l.failed}.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

func TestIstioLogTakesWhatAgentSends(t *testing.T) {
	t.Parallel()
	dir, l := runDir(t), &istioLog{}
	l.serve(t, dir)
	if info, err := os.Stat(filepath.Join(dir, spool.IstioLogSocket)); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := agentFor(dir).Log(t.Context(), logEntries()); err != nil {
		t.Fatal(err)
	}
	at := logEntries()[0].Time.UTC()
	want := []podsource.LogEntry{
		{Time: at, Level: slog.LevelDebug, Message: "a \"b\"", Attributes: map[string]string{"pod": "shop/web-0"}},
		{Time: at, Level: slog.LevelInfo, Message: "i", Attributes: map[string]string{}},
		{Time: at, Level: slog.LevelWarn, Message: "w", Attributes: map[string]string{}},
		{Time: at, Level: slog.LevelError, Message: "e", Attributes: map[string]string{}},
	}
	if diff := cmp.Diff(want, l.entries); diff != "" || l.errors != nil {
		t.Errorf("%s%q", diff, l.errors)
	}
}

func TestIstioLogLeavesOut(t *testing.T) {
	t.Parallel()
	const good = `{"level":"info","time":"2026-11-21T12:00:00Z","scope":"cni-plugin","msg":"m","pod":"shop/web-0","count":3,"if":["eth0"]}`
	array := func(lines ...string) string {
		data, err := json.Marshal(lines)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for name, test := range map[string]struct {
		body    string
		entries int
		errors  []string
	}{
		"nothing":         {array(), 0, nil},
		"one line":        {array(good), 1, nil},
		"no array":        {`{"level":"info"}`, 0, []string{"can't decode"}},
		"no JSON":         {"hello", 0, []string{"can't decode"}},
		"too much":        {array(strings.Repeat("x", 1<<20)), 0, []string{"1048576 bytes"}},
		"no object":       {array(good, `"text"`, good), 2, []string{"not an object"}},
		"no message":      {array(`{"level":"info","time":"2026-11-21T12:00:00Z"}`, good), 1, []string{"no msg"}},
		"no time":         {array(`{"level":"info","msg":"m"}`, good), 1, []string{"time"}},
		"another level":   {array(`{"level":"fatal","msg":"m","time":"2026-11-21T12:00:00Z"}`, good), 1, []string{`level is "fatal"`}},
		"level of a type": {array(`{"level":3,"msg":"m","time":"2026-11-21T12:00:00Z"}`), 0, []string{"level"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, l := runDir(t), &istioLog{}
			l.serve(t, dir)
			if status, answer := post(t, dir, test.body); status != http.StatusOK || answer != "" {
				t.Errorf("got %d %q", status, answer)
			}
			if len(l.entries) != test.entries || len(l.errors) != len(test.errors) {
				t.Fatalf("got %d lines, errors %q", len(l.entries), l.errors)
			}
			for i, want := range test.errors {
				if !strings.Contains(l.errors[i], want) {
					t.Errorf("error %q, want %q", l.errors[i], want)
				}
			}
			want := podsource.LogEntry{
				Time: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Level: slog.LevelInfo, Message: "m",
				Attributes: map[string]string{"pod": "shop/web-0", "count": "3", "if": `["eth0"]`},
			}
			for _, entry := range l.entries {
				if diff := cmp.Diff(want, entry); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestIstioLogAnswersWhateverTheSinkSays(t *testing.T) {
	t.Parallel()
	dir, l := runDir(t), &istioLog{err: errors.New("the disk is full")}
	l.serve(t, dir)
	if err := agentFor(dir).Log(t.Context(), logEntries()); err != nil {
		t.Error(err)
	}
	if len(l.errors) != 1 || !strings.Contains(l.errors[0], "the disk is full") {
		t.Errorf("errors %q", l.errors)
	}
}

// post sends a body as Istio's plugin does.
func post(t *testing.T, dir, body string) (status int, answer string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, spool.IstioLogSocket))
	}}
	status, answer, _ = roundTrip(t, transport, "POST", "http://unix/log", body)
	return status, answer
}
