// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
	"github.com/meshcni/meshcni/internal/spool"
)

// ParseLogLine reads a line that [slog.JSONHandler] wrote. All values but time, level and message
// become attributes.
func ParseLogLine(line []byte) (LogEntry, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return LogEntry{}, fmt.Errorf("a log line is not an object of JSON: %s", protocol.Quoted(err.Error()))
	}
	entry := LogEntry{Attributes: map[string]string{}}
	for key, value := range fields {
		text := fmt.Sprint(value)
		var err error
		switch key {
		case slog.TimeKey:
			entry.Time, err = time.Parse(time.RFC3339Nano, text)
		case slog.LevelKey:
			err = entry.Level.UnmarshalText([]byte(text))
		case slog.MessageKey:
			entry.Message = text
		default:
			entry.Attributes[key] = text
		}
		if err != nil {
			return LogEntry{}, fmt.Errorf("a log line has an invalid %s: %s", key, protocol.Quoted(text))
		}
	}
	return entry, nil
}

// istioLogTimeout is Istio's own.
const istioLogTimeout = time.Second

// logAsIstio is the second try, after the first has ended with failure.
func (a Agent) logAsIstio(ctx context.Context, entries []LogEntry, failure *Error) error {
	ctx, cancel := withTimeout(ctx, cmp.Or(a.CallTimeout, istioLogTimeout), "for one request")
	defer cancel()
	lines := make([]string, len(entries))
	for i, entry := range entries {
		line, err := entry.asIstio()
		if err != nil {
			return errors.Join(failure, &Error{Kind: ErrRequest, Source: sourceAgent, Cause: err})
		}
		lines[i] = line
	}
	second := socketClient{socket: filepath.Join(a.RunDir, spool.IstioLogSocket)}.call(ctx, http.MethodPost, "/log", lines, nil)
	switch {
	case second == nil:
		return nil
	case second.isMissing(): // only older agents have this socket, so the first failure says more
		return failure
	default:
		return errors.Join(failure, second)
	}
}

// asIstio writes the line in Istio's form. Istio's keys take precedence over attributes of that
// name.
func (l LogEntry) asIstio() (string, error) {
	line := make(map[string]string, len(l.Attributes)+4)
	maps.Copy(line, l.Attributes)
	line["level"], line["time"] = protocol.IstioLevel(l.Level), l.Time.UTC().Format(time.RFC3339Nano)
	line["scope"], line["msg"] = "cni-plugin", l.Message
	data, err := json.Marshal(line)
	if err != nil {
		return "", fmt.Errorf("write log line: %w", err)
	}
	return string(data), nil
}
