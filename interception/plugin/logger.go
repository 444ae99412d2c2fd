// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"io"
	"log/slog"
)

// newLogger writes JSON lines.
func newLogger(to io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level}))
}
