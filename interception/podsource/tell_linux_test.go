// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

var errFull = errors.New("the disk is full")

// fullLog takes no lines.
type fullLog struct{ *daemon }

func (l fullLog) Log(context.Context, []podsource.LogEntry) error { return errFull }

func TestAgentIsToldAllAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		offer          func(*daemon) agentserver.Server
		entries        []podsource.LogEntry
		reported, told error
		results        int
		errors         int
	}{
		"both":       {(*daemon).server, logEntries(), nil, nil, 1, 0},
		"no lines":   {(*daemon).server, nil, nil, nil, 1, 0},
		"no log":     {func(d *daemon) agentserver.Server { return agentserver.Server{Results: d} }, logEntries(), nil, podsource.ErrProtocol, 1, 0},
		"no results": {func(d *daemon) agentserver.Server { return agentserver.Server{Logs: d} }, logEntries(), podsource.ErrProtocol, nil, 0, 0},
		"a broken log": {func(d *daemon) agentserver.Server {
			return agentserver.Server{Results: d, Logs: fullLog{d}, OnError: d.onError}
		}, logEntries(), nil, podsource.ErrServer, 1, 2},
		"all is broken": {func(d *daemon) agentserver.Server { d.err = errFull; return d.server() }, nil, podsource.ErrServer, nil, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, dir := &daemon{}, runDir(t)
			serve(t, dir, test.offer(d))
			reported, logged := agentFor(dir).Tell(t.Context(), []podsource.Result{{Command: "ADD"}}, test.entries)
			if !errors.Is(reported, test.reported) || !errors.Is(logged, test.told) {
				t.Errorf("got %v, %v", reported, logged)
			}
			want := 0
			if test.told == nil {
				want = len(test.entries)
			}
			if len(d.results) != test.results || len(d.entries) != want || len(d.errors) != test.errors {
				t.Errorf("got %d results, %d lines, errors %v", len(d.results), len(d.entries), d.errors)
			}
		})
	}
}

// TestAgentIsToldWithOneRequest counts, and has an agent that is older: it doesn't know that lines
// may come with results.
func TestAgentIsToldWithOneRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		paths  []string
	}{
		"an agent":       {`{"entries":4}`, []string{"/v1/results"}},
		"an older agent": {"", []string{"/v1/results", "/v1/logs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runDir(t)
			var paths []string
			fakeAgent(t, dir, podsource.AgentSocket, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || strings.Count(string(body), `"message":`) != 4 {
					t.Errorf("got %s, %v", body, err)
				}
				paths = append(paths, r.URL.Path)
				if test.answer == "" {
					w.WriteHeader(http.StatusNoContent)
				}
				_, _ = io.WriteString(w, test.answer)
			})
			reported, logged := agentFor(dir).Tell(t.Context(), []podsource.Result{{Command: "ADD"}}, logEntries())
			if reported != nil || logged != nil {
				t.Errorf("got %v, %v", reported, logged)
			}
			if diff := cmp.Diff(test.paths, paths); diff != "" {
				t.Error(diff)
			}
		})
	}
}
