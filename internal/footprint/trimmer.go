// SPDX-License-Identifier: Apache-2.0

package footprint

import (
	"log/slog"
	"time"
)

// Quiet is how long after the last work a start or a wave of pods is over.
const Quiet = 10 * time.Second

// Trimmer calls a function each time the process's work has been over for a while. It has one timer, which only work sets: an idle
// process isn't woken, and is trimmed once. Make it with [NewTrimmer]; it is safe for use by several goroutines.
type Trimmer struct {
	quiet time.Duration
	timer *time.Timer
}

// NewTrimmer returns a trimmer that calls trim, such as [Trim], in a goroutine of its own when nothing has called Worked for the
// duration quiet, usually [Quiet]. The process's start counts as work. A failure of trim is logged.
func NewTrimmer(quiet time.Duration, trim func() error, log *slog.Logger) *Trimmer {
	return &Trimmer{quiet, time.AfterFunc(quiet, func() {
		if err := trim(); err != nil {
			log.Warn("memory that isn't in use is not given back", "error", err)
		}
	})}
}

// Worked says that the process has done something that takes memory.
func (t *Trimmer) Worked() { t.timer.Reset(t.quiet) }

// Stop forgets about work that was done. A call of trim may still be under way.
func (t *Trimmer) Stop() { t.timer.Stop() }
