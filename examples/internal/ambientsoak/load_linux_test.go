// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/internal/testing/testlog"
)

// load is the processor time that the programs of the machine have used.
type load struct {
	all, others time.Duration
	own         map[int]time.Duration // by process of this run
}

// otherPrograms returns the processor time that programs other than those of this run have used
// since the first call, without what the kernel has done for them: /proc does not tell that apart
// from the kernel's other work, which this run causes, too.
func (n *node) otherPrograms() time.Duration {
	all, own := machineTime(), map[int]time.Duration{}
	for _, process := range n.processes() {
		own[process] = userTime(process)
	}
	n.load.note(all, own)
	return n.load.others
}

// note takes over what the machine and the processes of this run have used by now. What a process
// has used after it was noted last, and before its end, counts as that of others.
func (l *load) note(all time.Duration, own map[int]time.Duration) {
	if l.own != nil {
		l.others += all - l.all
		for process, used := range own {
			l.others -= max(0, used-l.own[process]) // 0 of one that has ended
		}
	}
	l.all, l.own = all, own
}

// processes returns those of this run.
func (n *node) processes() []int {
	all, daemon := []int{os.Getpid()}, n.daemon.own()
	if daemon == 0 {
		return all
	}
	return append(all, daemon, child(daemon, "node-watcher"), child(daemon, "node-ambient"))
}

// tick is the unit of times in /proc (USER_HZ).
const tick = 10 * time.Millisecond

// machineTime returns how long all processors together have run programs, or another machine's
// (proc(5), /proc/stat).
func machineTime() time.Duration {
	text, _ := os.ReadFile("/proc/stat") // it is there
	first, _, _ := strings.Cut(string(text), "\n")
	const user, nice, steal = 1, 2, 8
	return times(strings.Fields(first), user, nice, steal)
}

// userTime returns how long a process has run, apart from what the kernel has done for it. It is 0
// for one that has ended.
func userTime(process int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	_, after, _ := strings.Cut(string(text), ") ")
	const user = 14 - 3 // the first two fields are before
	return times(strings.Fields(after), user)
}

// times adds some fields.
func times(fields []string, which ...int) (sum time.Duration) {
	for _, i := range which {
		if i < len(fields) {
			ticks, _ := strconv.Atoi(fields[i]) // the kernel writes a number
			sum += time.Duration(ticks) * tick
		}
	}
	return sum
}

// deadline is when the node has to be right again: within -within on a quiet machine. What other
// programs take of the processors meanwhile is added to that.
type deadline struct {
	begin  time.Time
	others time.Duration
}

func (n *node) newDeadline() deadline { return deadline{time.Now(), n.otherPrograms()} }

// spent returns how much has passed of a deadline's time.
func (n *node) spent(d deadline) time.Duration {
	taken := max(0, n.otherPrograms()-d.others) / time.Duration(runtime.NumCPU())
	return time.Since(d.begin) - taken
}

// isOver reports whether a deadline is over. It does not wait for ever either.
func (n *node) isOver(d deadline) bool {
	return n.spent(d) >= *within || time.Since(d.begin) >= testlog.Patience
}

// TestLoadOfOthers has two processes of the run, of which the second one ends and is replaced.
func TestLoadOfOthers(t *testing.T) {
	t.Parallel()
	var l load
	for i, noted := range []struct {
		all  time.Duration
		own  map[int]time.Duration
		want time.Duration // of others, so far
	}{
		{100, map[int]time.Duration{1: 10, 2: 20}, 0}, // the first one is the beginning
		{110, map[int]time.Duration{1: 15, 2: 25}, 0},
		{120, map[int]time.Duration{1: 15, 2: 28}, 7},
		{130, map[int]time.Duration{1: 25, 2: 0}, 7},
		{140, map[int]time.Duration{1: 25, 3: 10}, 7},
	} {
		if l.note(noted.all, noted.own); l.others != noted.want {
			t.Errorf("note %d: other programs have used %d, want %d", i, l.others, noted.want)
		}
	}
}

// TestOtherPrograms has another program use a processor.
func TestOtherPrograms(t *testing.T) {
	t.Parallel()
	n := &node{daemon: &daemon{}}
	before := n.otherPrograms()
	program := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done")
	if err := program.Run(); err != nil {
		t.Fatal(err)
	}
	used := program.ProcessState.UserTime()
	if seen := n.otherPrograms() - before; used == 0 || seen < used/2 { // the machine's time is a sample
		t.Errorf("other programs seem to have used %s, of which this one used %s", seen, used)
	}
}
