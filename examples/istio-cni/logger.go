// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"math"
)

// Levels. Istio's installer passes the level on that it has itself, by Istio's names.
const (
	levelInfo = slog.LevelInfo
	levelNone = slog.Level(math.MaxInt)
)

func parseLevel(name string) (slog.Level, error) {
	switch name {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return levelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error", "fatal":
		return slog.LevelError, nil
	case "none":
		return levelNone, nil
	default:
		return 0, fmt.Errorf("plugin_log_level is %q, and should be debug, info, warn, error, fatal or none", name)
	}
}

// newLogger writes JSON lines.
func newLogger(to io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level}))
}
