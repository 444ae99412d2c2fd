// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// markerVariable carries the marker from process to process.
const markerVariable = "MESHCNI_SANDBOX"

// Stages of the way inside.
const (
	stageInit   = "init"   // pid 1: starts the program, reaps, forwards signals
	stageSetup  = "setup"  // the program, in namespaces still bare
	stageInside = "inside" // the program and whatever it starts
)

// marker gives a process its position. A variable alone proves nothing, so each stage checks it
// against its process ids and namespace.
type marker struct {
	Stage string
	// PIDNamespace is the sandbox's, as in /proc/self/ns/pid; empty until it exists.
	PIDNamespace string
	Root         bool
	SingleID     bool
	Reason       string
}

func enter(ctx context.Context) (Info, error) {
	m, err := currentMarker()
	if err != nil {
		return Info{}, err
	}
	switch m.Stage {
	case stageInit:
		return runInit(m)
	case stageSetup:
		return setUp(m)
	case stageInside:
		return m.info(), nil
	}
	return runInside(ctx)
}

// currentMarker returns the marker that this process inherited. It is zero if there is none, or if
// it is not true here, for example inherited from a sandbox that this process has left.
func currentMarker() (marker, error) {
	var m marker
	if json.Unmarshal([]byte(os.Getenv(markerVariable)), &m) != nil {
		return marker{}, nil
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return marker{}, fmt.Errorf("identify PID namespace: %w; mount a proc file system at /proc", err)
	}
	var holds bool
	switch m.Stage {
	case stageInit:
		holds = os.Getpid() == 1
	case stageSetup:
		holds = os.Getppid() == 1 && m.PIDNamespace == namespace
	case stageInside:
		holds = m.PIDNamespace == namespace
	}
	if !holds {
		return marker{}, nil
	}
	return m, nil
}

func (m marker) info() Info {
	return Info{Inside: true, Root: m.Root, SingleID: m.SingleID, Reason: m.Reason}
}

func (m marker) String() string {
	text, err := json.Marshal(m)
	if err != nil { // strings and booleans only: it cannot fail
		panic(err)
	}
	return string(text)
}

// environment returns this process's environment without a marker.
func environment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, markerVariable+"=") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// Descriptors that the first processes inside inherit.
const (
	// One byte when the ids are mapped; end of file when the process outside has ended.
	initGoAhead = 3
	initReport  = 4
	setupReport = 3
)

// runInit is process 1 of the sandbox. It starts the program, reaps orphans, and forwards signals,
// so that the program, which may handle its children differently, need not.
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

	runtime.LockOSThread() // capabilities belong to a thread
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

// keepFromChildren makes this thread's capabilities neither inheritable nor, which follows
// (capabilities(7)), ambient. The ambient ones brought them here, but later child processes have
// capabilities only by being root.
func keepFromChildren() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	return unix.Capset(&header, &data[0])
}

// reapUntil reaps every child, orphans included, until the program ends. When process 1 then ends
// too, the kernel kills the other processes of the sandbox (pid_namespaces(7)).
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
