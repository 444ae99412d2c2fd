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

// usage is the processor time of programs and of the kernel.
type usage struct{ programs, kernel time.Duration }

// load is the processor time that the machine and the processes of this run have used.
type load struct {
	machine, run usage
	last         map[int]usage // by process of this run
}

// measure brings the load up to date, and returns it.
func (n *node) measure() load {
	run := map[int]usage{}
	for _, process := range n.processes() {
		run[process] = processTime(process)
	}
	n.load.note(machineTime(), run)
	return n.load
}

// note takes over what the machine and the processes of this run have used by now.
func (l *load) note(machine usage, run map[int]usage) {
	for process, used := range run { // 0 of one that has ended
		l.run.programs += max(0, used.programs-l.last[process].programs)
		l.run.kernel += max(0, used.kernel-l.last[process].kernel)
	}
	l.machine, l.last = machine, run
}

// othersSince returns what other programs have used since. The kernel does not tell for whom it has
// worked besides, in its own threads for example: that is divided in proportion to the programs'
// time. On a quiet machine it is all for this run.
func (l *load) othersSince(before load) time.Duration {
	own := l.run.programs - before.run.programs
	others := l.machine.programs - before.machine.programs - own
	if others <= 0 {
		return 0
	}
	kernel := max(0, l.machine.kernel-before.machine.kernel-(l.run.kernel-before.run.kernel))
	return others + time.Duration(float64(kernel)*float64(others)/float64(others+own))
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

// machineTime returns what all processors together have done (proc(5), /proc/stat). Time that
// the host has given to other machines counts as time of programs.
func machineTime() usage {
	text, _ := os.ReadFile("/proc/stat") // it is there
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	const user, nice, system, irq, softirq, steal = 1, 2, 3, 6, 7, 8
	return usage{times(fields, user, nice, steal), times(fields, system, irq, softirq)}
}

// processTime returns what a process has used. It is 0 for one that has ended.
func processTime(process int) usage {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	_, after, _ := strings.Cut(string(text), ") ")
	const user, system = 14 - 3, 15 - 3 // the first two fields are before
	fields := strings.Fields(after)
	return usage{times(fields, user), times(fields, system)}
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
	before load
}

func (n *node) newDeadline() deadline { return deadline{time.Now(), n.measure()} }

// spent returns how much has passed of a deadline's time.
func (n *node) spent(d deadline) time.Duration {
	now := n.measure()
	return time.Since(d.begin) - now.othersSince(d.before)/time.Duration(runtime.NumCPU())
}

// isOver reports whether a deadline is over. It does not wait for ever either.
func (n *node) isOver(d deadline) bool {
	return n.spent(d) >= *within || time.Since(d.begin) >= testlog.Patience
}

// TestLoadOfOthers has two processes of the run, of which the second one ends and is replaced.
func TestLoadOfOthers(t *testing.T) {
	t.Parallel()
	var l load
	l.note(usage{100, 100}, map[int]usage{1: {10, 10}, 2: {20, 0}})
	before := l
	for i, noted := range []struct {
		machine usage
		run     map[int]usage
		want    time.Duration
	}{
		{usage{110, 130}, map[int]usage{1: {15, 10}, 2: {25, 0}}, 0},  // all is the run's
		{usage{130, 160}, map[int]usage{1: {15, 10}, 2: {35, 0}}, 30}, // 10 of 30, and a third of 60
		{usage{130, 160}, map[int]usage{1: {15, 30}, 2: {35, 0}}, 23}, // 20 of the kernel's 60 are the run's
		{usage{140, 160}, map[int]usage{1: {25, 30}, 2: {}}, 20},      // 10 of 40, and a quarter of 40
		{usage{160, 160}, map[int]usage{1: {25, 30}, 3: {20, 0}}, 16}, // 10 of 60, and a sixth of 40
	} {
		if l.note(noted.machine, noted.run); l.othersSince(before) != noted.want {
			t.Errorf("note %d: other programs have used %d, want %d", i, l.othersSince(before), noted.want)
		}
	}
}

// TestOtherPrograms has another program use a processor.
func TestOtherPrograms(t *testing.T) {
	t.Parallel()
	n := &node{daemon: &daemon{}}
	before := n.measure()
	program := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done")
	if err := program.Run(); err != nil {
		t.Fatal(err)
	}
	used, now := program.ProcessState.UserTime(), n.measure()
	if seen := now.othersSince(before); used == 0 || seen < used/2 { // the machine's time is a sample
		t.Errorf("other programs seem to have used %s, of which this one used %s", seen, used)
	}
}
