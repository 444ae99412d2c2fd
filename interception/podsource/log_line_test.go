// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception/podsource"
)

func ExampleParseLogLine() {
	entry, err := podsource.ParseLogLine([]byte(`{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"pod is captured","pod":"shop/web-0"}`))
	fmt.Println(entry.Level, entry.Message, entry.Attributes["pod"], err)
	// Output: INFO pod is captured shop/web-0 <nil>
}

func TestParseLogLine(t *testing.T) {
	t.Parallel()
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Warn("m", "count", 3, "pod", "shop/web-0")
	entry, err := podsource.ParseLogLine(line.Bytes())
	if err != nil || entry.Time.IsZero() || entry.Level != slog.LevelWarn || entry.Message != "m" {
		t.Errorf("got %+v, %v", entry, err)
	}
	if diff := cmp.Diff(map[string]string{"count": "3", "pod": "shop/web-0"}, entry.Attributes); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		`{"msg":"cut sho`:            "not an object of JSON",
		`[]`:                         "not an object of JSON",
		`{"level":"loud","msg":"m"}`: "level",
		`{"time":"never","msg":"m"}`: `invalid time: "never"`,
		`{"time":3}`:                 "time",
	} {
		if _, err := podsource.ParseLogLine([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
