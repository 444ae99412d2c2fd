// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
)

// ParseLogLine reads a line that [slog.JSONHandler] wrote. All values but the usual three become attributes.
func ParseLogLine(line []byte) (LogEntry, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return LogEntry{}, fmt.Errorf("a log line is no object of JSON: %s", protocol.Quoted(err.Error()))
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
			return LogEntry{}, fmt.Errorf("a log line has a %s that is none: %s", key, protocol.Quoted(text))
		}
	}
	return entry, nil
}
