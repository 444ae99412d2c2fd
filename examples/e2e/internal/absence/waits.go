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
