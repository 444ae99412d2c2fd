// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"
)

// The types without the methods that write them.
type (
	plainResult Result
	plainEntry  LogEntry
)

// TestWritesWhatTheTagsSay compares what is written with what the types' tags say, by which the other side reads.
func TestWritesWhatTheTagsSay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 5000, time.UTC)
	full := Result{
		Time: now, Command: "ADD", ContainerID: "0a1b", Namespace: "shop", Name: "web-0", UID: "u", Captured: true, Reason: "injected",
		Detail: "<detail>", Source: "agent", Plan: "12dc", Warnings: []string{"one", "two"},
		Stages: []Stage{{"source", 1.25}, {"apply", 0}}, Error: &ResultError{Code: 7, Message: `"m"`, Details: "d"},
	}
	entry := LogEntry{Time: now, Level: slog.LevelWarn + 1, Message: "m", Attributes: map[string]string{"pod": "shop/web-0", "a": ""}}
	for _, pair := range [][2]any{
		{full, plainResult(full)},
		{Result{}, plainResult{}},
		{Result{Error: &ResultError{}}, plainResult{Error: &ResultError{}}},
		{entry, plainEntry(entry)},
		{LogEntry{}, plainEntry{}},
		{resultsRequest{Results: []Result{full, {}}}, map[string]any{"results": []plainResult{plainResult(full), {}}}},
		{
			resultsRequest{[]Result{full}, []LogEntry{entry}},
			struct {
				Results []plainResult `json:"results"`
				Entries []plainEntry  `json:"entries"`
			}{[]plainResult{plainResult(full)}, []plainEntry{plainEntry(entry)}},
		},
		{logsRequest{[]LogEntry{entry}}, map[string]any{"entries": []plainEntry{plainEntry(entry)}}},
	} {
		got, err := json.Marshal(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
