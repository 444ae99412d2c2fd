// SPDX-License-Identifier: Apache-2.0

package protocol

import "log/slog"

// IstioLevel is what Istio calls the level, or the next lower one that it has.
func IstioLevel(level slog.Level) string {
	switch {
	case level < slog.LevelInfo:
		return "debug"
	case level < slog.LevelWarn:
		return "info"
	case level < slog.LevelError:
		return "warn"
	default:
		return "error"
	}
}
