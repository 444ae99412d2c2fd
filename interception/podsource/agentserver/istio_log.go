// SPDX-License-Identifier: Apache-2.0

package agentserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
)

// IstioLogServer is the agent's side of Istio's protocol for log lines. Istio's plugins speak it,
// and so does [podsource.Agent] with an agent that is older than its own protocol.
//
// A request is an array of strings, each a line of JSON with "level" (debug, info, warn or error),
// "time" (RFC 3339) and "msg"; whatever else is there becomes an attribute, "scope" aside. The
// server leaves out any other line. The answer is empty, with status 200 even after an error,
// because clients can do nothing about it; only a refused peer gets 403.
type IstioLogServer struct {
	// Logs takes the lines, those of a request at once.
	Logs LogSink
	// OnError, if not nil, is told what is not understood, which peer was refused, and how the sink
	// failed. It is called from several goroutines at once.
	OnError func(error)
	// Instance, unless it is empty, is in the header [InstanceHeader] of each answer.
	Instance string
}

// Serve answers on a listener, such as [ListenIstioLog] makes, as [Server.Serve] does and within
// the same bounds.
func (s IstioLogServer) Serve(ctx context.Context, listener net.Listener) error {
	var mux http.ServeMux
	mux.HandleFunc("/log", s.log)
	return socketServer{&mux, s.report, s.Instance}.serve(ctx, listener)
}

func (s IstioLogServer) report(err error) {
	if s.OnError != nil {
		s.OnError(err)
	}
}

func (s IstioLogServer) log(w http.ResponseWriter, r *http.Request) {
	if failure := refusedPeer(r.Context()); failure != nil {
		s.report(failure.err)
		w.WriteHeader(failure.status)
		return
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), workWithin, errTooLong)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, protocol.MaxBody)
	var lines []string
	if failure := decodeBody(r, &lines); failure != nil {
		s.report(fmt.Errorf("can't decode log lines of a plugin: %s", protocol.Quoted(failure.refusal.Message)))
		return
	}
	entries := make([]podsource.LogEntry, 0, len(lines))
	for _, line := range lines {
		entry, err := entryOfIstio([]byte(line))
		if err != nil {
			s.report(fmt.Errorf("left out a log line of a plugin: %w", err))
			continue
		}
		entries = append(entries, entry)
	}
	if err := s.Logs.Log(ctx, entries); err != nil {
		s.report(fmt.Errorf("log lines of a plugin: %w", err))
	}
}

// entryOfIstio reads a line of JSON as Istio's plugin logs it.
func entryOfIstio(line []byte) (podsource.LogEntry, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return podsource.LogEntry{}, fmt.Errorf("it is not an object of JSON: %s", protocol.Quoted(err.Error()))
	}
	entry := podsource.LogEntry{Attributes: map[string]string{}}
	level, _ := fields["level"].(string)
	stamp, _ := fields["time"].(string)
	message, found := fields["msg"].(string)
	at, err := time.Parse(time.RFC3339Nano, stamp)
	switch {
	case !found:
		return podsource.LogEntry{}, errors.New("it has no msg")
	case err != nil:
		return podsource.LogEntry{}, fmt.Errorf("its time is %s", protocol.Quoted(stamp))
	}
	entry.Time, entry.Message = at, message
	if entry.Level, found = levelOfIstio(level); !found {
		return podsource.LogEntry{}, fmt.Errorf("its level is %s", protocol.Quoted(level))
	}
	for key, value := range fields {
		switch key {
		case "level", "time", "msg", "scope":
			continue
		}
		if text, isText := value.(string); isText {
			entry.Attributes[key] = text
			continue
		}
		data, err := json.Marshal(value)
		if err != nil {
			return podsource.LogEntry{}, fmt.Errorf("its %s: %w", protocol.Quoted(key), err)
		}
		entry.Attributes[key] = string(data)
	}
	return entry, nil
}

func levelOfIstio(name string) (_ slog.Level, found bool) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if name == protocol.IstioLevel(level) {
			return level, true
		}
	}
	return 0, false
}
