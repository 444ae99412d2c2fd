// SPDX-License-Identifier: Apache-2.0

package absence

import (
	"fmt"
	"time"
)

// The limits of [Measure.Check].
const (
	mostShare = 0.01
	mostOnce  = time.Second
)

// Measure is what was seen. The zero value has seen nothing.
type Measure struct {
	// Watched is the time over which it was looked.
	Watched time.Duration
	// Absent is for how long the thing was missing, gaps that have ended.
	Absent time.Duration
	// Excused is the part of Absent in which the program waited for a processor: of each gap, the longest wait
	// of a single thread.
	Excused time.Duration
	// Longest is the longest gap.
	Longest time.Duration

	missing bool
	current time.Duration // of the gap that goes on
	before  Waits         // when that began
}

// Begin notes that the thing is missing from now on, if it wasn't.
func (m *Measure) Begin(waits func() (Waits, error)) (err error) {
	if !m.missing {
		m.missing = true
		m.before, err = waits()
	}
	return err
}

// See notes whether the thing is there, so long after the look before. A gap lasts until the look that finds its end,
// however late that is.
func (m *Measure) See(there bool, since time.Duration, waits func() (Waits, error)) error {
	if there && !m.missing {
		return nil
	}
	m.current += since
	if !there {
		m.Longest = max(m.Longest, m.current)
		return m.Begin(waits)
	}
	after, err := waits()
	if err != nil {
		return err
	}
	m.Absent, m.Longest = m.Absent+m.current, max(m.Longest, m.current)
	m.Excused += min(m.current, after.longestSince(m.before))
	m.missing, m.current = false, 0
	return nil
}

// Shares are the parts of the time without the thing: as it was seen, and without what is excused. A gap that goes
// on counts as a whole.
func (m *Measure) Shares() (raw, checked float64) {
	absent := m.Absent + m.current
	return absent.Seconds() / m.Watched.Seconds(), (absent - m.Excused).Seconds() / m.Watched.Seconds()
}

// Check holds what was seen against the limits: missing for less than a hundredth of the time but for what is
// excused, and never for more than a second, whatever the reason.
func (m *Measure) Check() error {
	raw, checked := m.Shares()
	switch {
	case m.Watched <= 0:
		return fmt.Errorf("nothing was measured in %v", m.Watched)
	case checked >= mostShare:
		return fmt.Errorf("missing for %.3f %% of the time (%.3f %% with waits for a processor): it must be less than %g %%",
			100*checked, 100*raw, 100*mostShare)
	case m.Longest > mostOnce:
		return fmt.Errorf("missing for %v at a time: it must not be more than %v", m.Longest, mostOnce)
	}
	return nil
}
