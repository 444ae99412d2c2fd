// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Descriptors that the first processes inside inherit.
const (
	initGoAhead = 3 // one byte when the ids are mapped; end of file when the process outside is gone
	initReport  = 4
	setupReport = 3
)

// runInit is process 1 of the sandbox. It does nothing but what process 1 is for, so that the program itself, with its own
// ideas about its children, needn't: it starts the program, reaps orphans, and hands on signals.
func runInit(m marker) (Info, error) {
	goAhead, report := os.NewFile(initGoAhead, "go ahead"), os.NewFile(initReport, "report")
	if _, err := io.ReadFull(goAhead, make([]byte, 1)); err != nil {
		return Info{}, fmt.Errorf("wait for ids: the process outside is gone: %w", err)
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return Info{}, fmt.Errorf("identify PID namespace: %w", err)
	}
	m.Stage, m.PIDNamespace = stageSetup, namespace

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, handedOn()...)

	runtime.LockOSThread() // capabilities are a thread's
	if err := keepFromChildren(); err != nil {
		return Info{}, fmt.Errorf("give up inheritable capabilities: %w", err)
	}
	program := selfCommand(context.Background(), os.Args[1:])
	program.Env = append(environment(), markerVariable+"="+m.String())
	program.ExtraFiles = []*os.File{report}
	if err := program.Start(); err != nil {
		return Info{}, fmt.Errorf("start the program inside: %w", err)
	}
	_, _ = goAhead.Close(), report.Close()
	go handOn(signals, program.Process)
	code, err := reapUntil(program.Process.Pid)
	return Info{ExitCode: code}, err
}

// keepFromChildren makes this thread's capabilities neither inheritable nor, which follows (capabilities(7)), ambient. That
// brought them here, but what is started from now on has them by being root, or not at all.
func keepFromChildren() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	return unix.Capset(&header, &data[0])
}

// reapUntil reaps every child, orphans included, until the program ends. When process 1 then ends, too, the kernel kills what
// is left in the sandbox (pid_namespaces(7)).
func reapUntil(program int) (int, error) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the program inside: %w", err)
		case pid == program:
			return exitCode(status), nil
		}
	}
}
