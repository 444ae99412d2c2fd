// SPDX-License-Identifier: Apache-2.0

package footprint

import (
	"log/slog"
	"time"
)

// Quiet is the time without work after which start-up or a wave of pods is over.
const Quiet = 10 * time.Second

// Trimmer calls a function each time the process has been without work for a while. Only work sets
// its one timer: an idle process is trimmed once and not woken again. Create it with [NewTrimmer];
// several goroutines may use it.
type Trimmer struct {
	quiet time.Duration
	timer *time.Timer
}

// NewTrimmer returns a trimmer that calls trim, such as [Trim], in a goroutine of its own after the
// duration quiet without a call of Worked; use [Quiet]. The process's start counts as work. A
// failure of trim is logged.
func NewTrimmer(quiet time.Duration, trim func() error, log *slog.Logger) *Trimmer {
	return &Trimmer{quiet, time.AfterFunc(quiet, func() {
		if err := trim(); err != nil {
			log.Warn("can't give back unused memory", "error", err)
		}
	})}
}

// Worked reports to the trimmer that the process has done something that takes memory.
func (t *Trimmer) Worked() { t.timer.Reset(t.quiet) }

// Stop cancels the next call of trim. A call that has begun may continue.
func (t *Trimmer) Stop() { t.timer.Stop() }
