// SPDX-License-Identifier: Apache-2.0

package footprint

import "time"

// Trimmer calls a function each time the process's work has been over for a while. It has one timer, which only work sets: an idle
// process isn't woken, and is trimmed once. Make it with [NewTrimmer]; it is safe for use by several goroutines.
type Trimmer struct {
	quiet time.Duration
	timer *time.Timer
}

// NewTrimmer returns a trimmer that calls trim, such as [Trim], in a goroutine of its own when nothing has called Worked for the
// duration quiet. The process's start counts as work.
func NewTrimmer(quiet time.Duration, trim func()) *Trimmer {
	return &Trimmer{quiet, time.AfterFunc(quiet, trim)}
}

// Worked says that the process has done something that takes memory.
func (t *Trimmer) Worked() { t.timer.Reset(t.quiet) }

// Stop forgets about work that was done. A call of trim may still be under way.
func (t *Trimmer) Stop() { t.timer.Stop() }
