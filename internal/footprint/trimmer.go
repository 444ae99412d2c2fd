// SPDX-License-Identifier: Apache-2.0

package footprint

import (
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Quiet is the time without work after which start-up or a wave of pods is over.
const Quiet = 10 * time.Second

// Trimmer calls a function each time the process has been without work for a while. Only work sets
// its one timer: an idle process is trimmed once and not woken again. Create it with [NewTrimmer];
// several goroutines may use it.
type Trimmer struct {
	quiet   time.Duration
	percent Percent
	timer   *time.Timer

	mu      sync.Mutex
	working bool
}

// Percent has two settings of the garbage collector (runtime/debug.SetGCPercent): while the process
// works, when collections cost time, and while it is idle, when garbage costs memory. Zero leaves
// the collector as it is.
type Percent struct{ Working, Idle int }

// NewTrimmer returns a trimmer that calls trim, such as [Trim], in a goroutine of its own after the
// duration quiet without a call of Worked; use [Quiet]. The process's start counts as work. A
// failure of trim is logged.
func NewTrimmer(quiet time.Duration, percent Percent, trim func() error, log *slog.Logger) *Trimmer {
	t := &Trimmer{quiet: quiet, percent: percent}
	t.set(true)
	t.timer = time.AfterFunc(quiet, func() {
		t.set(false)
		if err := trim(); err != nil {
			log.Warn("can't give back unused memory", "error", err)
		}
	})
	return t
}

// Worked reports to the trimmer that the process has done something that takes memory.
func (t *Trimmer) Worked() {
	t.timer.Reset(t.quiet)
	t.set(true)
}

// set sets the garbage collector, unless it is set so already.
func (t *Trimmer) set(working bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.working == working {
		return
	}
	t.working = working
	if percent := t.percent.of(working); percent > 0 {
		debug.SetGCPercent(percent)
	}
}

func (p Percent) of(working bool) int {
	if working {
		return p.Working
	}
	return p.Idle
}

// Stop cancels the next call of trim. A call that has begun may continue.
func (t *Trimmer) Stop() { t.timer.Stop() }
