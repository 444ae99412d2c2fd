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

// Trimmer calls functions each time the process has been without work for a while. Only work sets
// its timers: an idle process is trimmed once and not woken again. Create it with [NewTrimmer];
// several goroutines may use it.
type Trimmer struct {
	options     Options
	trim, pause *time.Timer

	mu      sync.Mutex
	working bool
}

// Options are the settings of a [Trimmer].
type Options struct {
	// Quiet is how long the process must be without work until Trim is called; use [Quiet].
	Quiet time.Duration
	// Trim, such as the function [Trim], gives memory back. It must be set.
	Trim func() error
	// Log receives failures of Trim. It must be set.
	Log *slog.Logger
	// Percent is how much garbage the process may have.
	Percent Percent
	// Pause is how long the process must be without work until Collect is called, which may be nil.
	Pause time.Duration
	// Collect, such as runtime.GC, collects garbage. Otherwise a collection that is due soon would
	// slow down the next work.
	Collect func()
}

// Percent has two settings of the garbage collector (runtime/debug.SetGCPercent): while the process
// works, when collections cost time, and while it is idle, when garbage costs memory. Zero leaves
// the collector as it is.
type Percent struct{ Working, Idle int }

// NewTrimmer returns a trimmer that calls each function in a goroutine of its own after its time
// without a call of Worked. The process's start counts as work.
func NewTrimmer(o Options) *Trimmer {
	t := &Trimmer{options: o}
	t.set(true)
	if o.Collect != nil {
		t.pause = time.AfterFunc(o.Pause, o.Collect)
	}
	t.trim = time.AfterFunc(o.Quiet, func() {
		t.set(false)
		if err := o.Trim(); err != nil {
			o.Log.Warn("can't give back unused memory", "error", err)
		}
	})
	return t
}

// Worked reports to the trimmer that the process has done something that takes memory.
func (t *Trimmer) Worked() {
	if t.pause != nil {
		t.pause.Reset(t.options.Pause)
	}
	t.trim.Reset(t.options.Quiet)
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
	if percent := t.options.Percent.of(working); percent > 0 {
		debug.SetGCPercent(percent)
	}
}

func (p Percent) of(working bool) int {
	if working {
		return p.Working
	}
	return p.Idle
}

// Stop cancels the next call of each function. A call that has begun may continue.
func (t *Trimmer) Stop() {
	if t.pause != nil {
		t.pause.Stop()
	}
	t.trim.Stop()
}
