// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"golang.org/x/sys/unix"
)

// course is what the kernel told of a process and of all that it started (ptrace(2)).
type course struct {
	outcome
	killed bool
	// stops is how often a thread stood at the beginning or the end of a system call.
	stops int
	// starts is how many processes were started, threads not counted.
	starts int
	// programs are those that were executed, the first one not counted.
	programs []string
}

// trace runs an ADD as a process, and kills it (SIGKILL) at the stop of a number; 0 lets it end by
// itself.
func (n *node) trace(args *skel.CmdArgs, end int) course {
	n.t.Helper()
	return n.traceProgram(n.program(), environment("ADD", args), args.StdinData, end)
}

func (n *node) traceProgram(path string, environment []string, input []byte, end int) course {
	n.t.Helper()
	runtime.LockOSThread() // the kernel tells the thread that began it
	defer runtime.UnlockOSThread()
	streams := n.streams(input)
	pid, err := syscall.ForkExec(path, []string{path}, &syscall.ProcAttr{
		Env: environment, Files: []uintptr{streams[0].Fd(), streams[1].Fd(), streams[2].Fd()},
		Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
		n.t.Fatalf("the process doesn't stop for its parent: %#x, %v", status, err)
	}
	const options = unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACEEXEC |
		unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK
	if err := errors.Join(unix.PtraceSetOptions(pid, options), unix.PtraceSyscall(pid, 0)); err != nil {
		n.t.Fatal(err)
	}
	l := follow(n.t, pid, end)
	l.stdout, l.stderr = content(n.t, streams[1]), content(n.t, streams[2])
	l.checkForSecrets(n.t)
	return l
}

// streams are standard input, output and error.
func (n *node) streams(input []byte) [3]*os.File {
	n.t.Helper()
	dir := n.t.TempDir()
	var streams [3]*os.File
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, input, 0o600); err != nil {
			n.t.Fatal(err)
		}
		input = nil
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = file.Close() })
		streams[i] = file
	}
	return streams
}

func content(t testing.TB, file *os.File) string {
	t.Helper()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// follow lets a process go on until it and its like have ended. Other children of this program are
// in other process groups, and left to those who wait for them.
func follow(t testing.TB, pid, end int) course {
	t.Helper()
	var l course
	for {
		var status unix.WaitStatus
		thread, err := unix.Wait4(-pid, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return l
		case err != nil:
			t.Fatal(err)
		case !status.Stopped():
			if thread == pid {
				l.code, l.killed = status.ExitStatus(), status.Signal() == unix.SIGKILL
			}
			continue
		}
		signal := l.stop(t, thread, status)
		if l.stops == end && end > 0 {
			err = unix.Kill(pid, unix.SIGKILL)
		} else {
			err = unix.PtraceSyscall(thread, int(signal))
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // it has just been killed
			t.Fatal(err)
		}
	}
}

// stop takes down why a thread stands still, and returns the signal that it is to have.
func (l *course) stop(t testing.TB, thread int, status unix.WaitStatus) unix.Signal {
	t.Helper()
	switch signal := status.StopSignal(); signal { //nolint:exhaustive // other signals are for the process itself
	case unix.SIGTRAP | 0x80:
		l.stops++
		return 0
	case unix.SIGSTOP: // a new one begins with it
		return 0
	case unix.SIGTRAP:
		switch status.TrapCause() {
		case unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK:
			l.starts++
		case unix.PTRACE_EVENT_EXEC:
			program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(thread), "exe"))
			if err != nil {
				t.Fatal(err)
			}
			l.programs = append(l.programs, program)
		}
		return 0
	default:
		return signal
	}
}
