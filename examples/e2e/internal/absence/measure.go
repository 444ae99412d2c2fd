// SPDX-License-Identifier: Apache-2.0

package absence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The limits of [Measure.Check].
const (
	mostShare = 0.01
	mostOnce  = time.Second
)

// Measure holds the observations. The zero value has none.
type Measure struct {
	// Watched is the observed time.
	Watched time.Duration
	// Absent is the sum of all ended gaps.
	Absent time.Duration
	// Excused is the part of Absent in which the program waited for a processor: the longest wait
	// of a single thread in each gap.
	Excused time.Duration
	// Longest is the longest gap.
	Longest time.Duration

	missing bool
	current time.Duration // of the open gap
	before  Waits         // at its start
}

// Begin notes that the thing is missing from now on, if no gap is open.
func (m *Measure) Begin(waits func() (Waits, error)) (err error) {
	if !m.missing {
		m.missing = true
		m.before, err = waits()
	}
	return err
}

// See notes whether the thing exists, given the time since the previous observation. A gap lasts
// until the observation that finds its end, however late that is.
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

// Shares returns the fractions of the time without the thing: as observed, and without what is
// excused. An open gap counts in full.
func (m *Measure) Shares() (raw, checked float64) {
	absent := m.Absent + m.current
	return absent.Seconds() / m.Watched.Seconds(), (absent - m.Excused).Seconds() / m.Watched.Seconds()
}

// Check compares the observations with the limits: missing for less than a hundredth of the time,
// not counting what is excused, and never for more than a second, whatever the reason.
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

// Waits holds how long each thread of a process has been ready to run without a processor.
type Waits map[string]time.Duration

// ReadWaits reads the waits of a process, given its directory in proc.
func ReadWaits(process string) (Waits, error) {
	names, err := filepath.Glob(process + "/task/*/schedstat")
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("the process that was %s has ended", process)
	}
	all := Waits{}
	for _, name := range names {
		var ran, queued, turns int64
		text, failure := os.ReadFile(name)
		switch {
		case errors.Is(failure, fs.ErrNotExist) || errors.Is(failure, syscall.ESRCH):
			// The thread has ended.
			continue
		case failure == nil:
			_, failure = fmt.Sscan(string(text), &ran, &queued, &turns)
		}
		all[name], err = time.Duration(queued), errors.Join(err, failure)
	}
	return all, err
}

// longestSince returns the longest wait of one thread since an earlier reading. Waits of several
// threads are not added up, because they may overlap.
func (w Waits) longestSince(before Waits) time.Duration {
	longest := time.Duration(0)
	for thread, wait := range w {
		longest = max(longest, wait-before[thread])
	}
	return longest
}
