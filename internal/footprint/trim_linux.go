// SPDX-License-Identifier: Apache-2.0

package footprint

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Trim returns unused memory to the system: free parts of the heap, and the pages of the program's
// own file that were read so far. Pages that are needed again are mapped again from the system's
// cache.
func Trim() error {
	debug.FreeOSMemory()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("find this program's pages: %w", err)
	}
	for _, m := range untouched(smaps, program) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.size, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back this program's pages: %w", errno)
		}
	}
	return nil
}

type mapping struct{ from, size uintptr }

// untouched finds, in a /proc/PID/smaps (proc_pid_smaps(5)), the read-only private mappings of a
// file in which no page differs from the file. Other pages would be lost: a linker may have written
// to them before it made them read-only.
func untouched(smaps []byte, file string) []mapping {
	var found []mapping
	clean := false // the last mapping is untouched, as far as it was read
	for line := range bytes.Lines(smaps) {
		fields := strings.Fields(string(line))
		switch {
		case len(fields) == 0:
		case !strings.HasSuffix(fields[0], ":"):
			var m mapping
			if m, clean = parseMapping(fields, file); clean {
				found = append(found, m)
			}
		case clean && (fields[0] == "Anonymous:" || fields[0] == "Swap:") && (len(fields) < 2 || fields[1] != "0"):
			found, clean = found[:len(found)-1], false
		}
	}
	return found
}

func parseMapping(fields []string, file string) (_ mapping, ok bool) {
	if len(fields) != 6 || fields[5] != file || strings.Contains(fields[1], "w") || !strings.HasSuffix(fields[1], "p") {
		return mapping{}, false
	}
	first, last, _ := strings.Cut(fields[0], "-")
	begin, err := strconv.ParseUint(first, 16, 64)
	if err != nil {
		return mapping{}, false
	}
	end, err := strconv.ParseUint(last, 16, 64)
	if err != nil || end <= begin {
		return mapping{}, false
	}
	return mapping{uintptr(begin), uintptr(end - begin)}, true
}
