// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
	"github.com/meshcni/meshcni/internal/jsonreader"
)

// ParseLogLine reads a line that [slog.JSONHandler] wrote. All values but the usual three become attributes.
func ParseLogLine(line []byte) (LogEntry, error) {
	fields, err := logFields(line)
	if err != nil {
		return LogEntry{}, fmt.Errorf("a log line is no object of JSON: %s", protocol.Quoted(err.Error()))
	}
	entry := LogEntry{Attributes: map[string]string{}}
	for key, text := range fields {
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

// logFields are the members of an object, as texts.
func logFields(line []byte) (map[string]string, error) {
	texts := map[string]string{}
	if jsonreader.Read(line, func(r *jsonreader.Reader) { r.Map(func(name string) { texts[name] = r.String() }) }) {
		return texts, nil
	}
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, err
	}
	clear(texts)
	for key, value := range fields {
		texts[key] = fmt.Sprint(value)
	}
	return texts, nil
}
