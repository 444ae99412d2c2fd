// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
)

// lines writes plugins' log lines to the daemon's own log.
type lines struct {
	to  slog.Handler
	now func() time.Time
	mu  sync.Mutex // keeps lines of one request together
}

// Log writes entries with their own times. Their attributes are in a group, so that they cannot be
// taken for the daemon's.
func (l *lines) Log(ctx context.Context, entries []podsource.LogEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range entries {
		level := min(max(entry.Level, slog.LevelDebug), slog.LevelError)
		if !l.to.Enabled(ctx, level) {
			continue
		}
		at := entry.Time
		if at.IsZero() {
			at = l.now()
		}
		record := slog.NewRecord(at, level, entry.Message, 0)
		record.AddAttrs(slog.String("from", "cni-plugin"))
		if pod := entry.Attributes["pod"]; isPod(pod) {
			record.AddAttrs(slog.String("pod", pod))
		}
		group := make([]any, 0, len(entry.Attributes))
		for _, key := range slices.Sorted(maps.Keys(entry.Attributes)) {
			group = append(group, slog.String(key, entry.Attributes[key]))
		}
		record.AddAttrs(slog.Group("plugin", group...))
		if err := l.to.Handle(ctx, record); err != nil {
			return err
		}
	}
	return nil
}

// isPod reports whether the text can be a pod's namespace and name.
func isPod(text string) bool {
	namespace, name, found := strings.Cut(text, "/")
	return found && namespace != "" && name != "" && len(text) <= 2*253+1 &&
		strings.Trim(namespace+name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}
