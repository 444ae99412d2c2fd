// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFormOfRequests holds every byte of what goes over the agent's socket: plugin and agent may be
// of different versions.
func TestFormOfRequests(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 5000, time.UTC)
	result := Result{
		Time: now, Command: "ADD", ContainerID: "0a1b", Namespace: "shop", Name: "web-0", UID: "u", Captured: true, Reason: "injected",
		Detail: "<detail>", Source: "agent", Plan: "12dc", Warnings: []string{"one", "two"},
		Stages: []Stage{{"source", 1.25}, {"apply", 0}}, Error: &ResultError{Code: 7, Message: `"m"`, Details: "d"},
	}
	entry := LogEntry{Time: now, Level: slog.LevelWarn + 1, Message: "m", Attributes: map[string]string{"pod": "shop/web-0", "a": ""}}
	const (
		resultText = `{"time":"2026-11-21T12:00:00.000005Z","command":"ADD","containerID":"0a1b","namespace":"shop","name":"web-0","uid":"u",` +
			`"captured":true,"reason":"injected","detail":"\u003cdetail\u003e","source":"agent","plan":"12dc","warnings":["one","two"],` +
			`"stages":[{"name":"source","milliseconds":1.25},{"name":"apply","milliseconds":0}],` +
			`"error":{"code":7,"message":"\"m\"","details":"d"}}`
		entryText = `{"time":"2026-11-21T12:00:00.000005Z","level":"WARN+1","message":"m","attributes":{"a":"","pod":"shop/web-0"}}`
	)
	for want, body := range map[string]any{
		`{"results":[` + resultText + `,{"time":"0001-01-01T00:00:00Z","command":"","captured":false}]}`: resultsRequest{Results: []Result{result, {}}},
		`{"results":[` + resultText + `],"entries":[` + entryText + `]}`:                                 resultsRequest{[]Result{result}, []LogEntry{entry}},
		`{"entries":[` + entryText + `,{"time":"0001-01-01T00:00:00Z","level":"INFO","message":""}]}`:    logsRequest{[]LogEntry{entry, {}}},
		`{"results":[{"time":"0001-01-01T00:00:00Z","command":"","captured":false,"error":{"code":0,"message":""}}]}`: resultsRequest{
			Results: []Result{{Error: &ResultError{}}},
		},
	} {
		got, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
