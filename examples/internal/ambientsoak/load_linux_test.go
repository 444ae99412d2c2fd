// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
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
	if n.load.own != nil {
		n.load.others += all - n.load.all
		for process, time := range own {
			n.load.others -= time - n.load.own[process]
		}
	}
	n.load.all, n.load.own = all, own
	return n.load.others
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
