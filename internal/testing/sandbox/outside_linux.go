// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// graceful is how long the program inside may take to end after SIGTERM.
const graceful = 10 * time.Second

// runInside starts the program inside a new sandbox and waits for its end.
func runInside(ctx context.Context) (Info, error) {
	privileged, err := hasPrivileges()
	if err != nil {
		return Info{}, err
	}
	if privileged {
		return launch(ctx, marker{Stage: stageInit, Root: true}, nil)
	}
	ids, reason := subordinateIDs()
	if ids != nil {
		info, err := launch(ctx, marker{Stage: stageInit}, ids)
		if !errors.Is(err, errMapping) {
			return info, err
		}
		reason = err.Error()
	}
	return launch(ctx, marker{Stage: stageInit, SingleID: true, Reason: reason}, singleID)
}

// hasPrivileges reports whether this process can create namespaces without a user namespace, and
// take any user id in them.
func hasPrivileges() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read own capabilities: %w", err)
	}
	return os.Geteuid() == 0 && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0, nil
}

// launch starts process 1 of a sandbox, maps its ids (except for root), and waits for its end.
func launch(ctx context.Context, m marker, ids idMapper) (Info, error) {
	// The kernel sends the death signal when the thread that cloned ends, not the process
	// (prctl(2), PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	goAhead, letGo, err := os.Pipe()
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = letGo.Close() }()
	reports, report, err := os.Pipe()
	if err != nil {
		_ = goAhead.Close()
		return Info{}, err
	}
	defer func() { _ = reports.Close() }()

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, handedOn()...)
	defer signal.Stop(signals)

	command, err := initCommand(ctx, m)
	if err != nil {
		_, _ = goAhead.Close(), report.Close()
		return Info{}, err
	}
	command.ExtraFiles = []*os.File{goAhead, report}
	err = command.Start()
	_, _ = goAhead.Close(), report.Close()
	if err != nil {
		return Info{}, explain("create namespaces", err, m.Root)
	}
	go handOn(signals, command.Process)

	if err := release(ctx, command, letGo, reports, m, ids); err != nil {
		_ = command.Process.Kill()
		_ = command.Wait()
		return Info{}, err
	}
	err = command.Wait()
	if ctx.Err() != nil {
		return Info{}, fmt.Errorf("the program inside was ended: %w", context.Cause(ctx))
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return Info{}, fmt.Errorf("wait for the program inside: %w", err)
	}
	status, ok := command.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return Info{}, fmt.Errorf("wait for the program inside: unexpected state %v", command.ProcessState)
	}
	return Info{ExitCode: exitCode(status)}, nil
}

// initCommand returns this program as process 1 of new namespaces. It has a process group of its
// own, so that it gets a signal from the terminal only once: forwarded.
func initCommand(ctx context.Context, m marker) (*exec.Cmd, error) {
	attributes := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
		Setpgid:    true,
	}
	if !m.Root {
		// The ids are mapped after the program is executed. Until then its user is unmapped, and it
		// would lose its capabilities; under no_new_privs (prctl(2)) for good.
		capabilities, err := allCapabilities()
		if err != nil {
			return nil, err
		}
		attributes.Cloneflags |= unix.CLONE_NEWUSER
		attributes.AmbientCaps = capabilities
	}
	command := selfCommand(ctx, os.Args[1:])
	command.Env = append(environment(), markerVariable+"="+m.String())
	command.SysProcAttr = attributes
	command.Cancel = func() error { return command.Process.Signal(unix.SIGTERM) }
	command.WaitDelay = graceful
	return command, nil
}

// allCapabilities returns the numbers of those that this kernel knows.
func allCapabilities() ([]uintptr, error) {
	text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return nil, fmt.Errorf("count capabilities: %w", err)
	}
	last, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 6)
	if err != nil {
		return nil, fmt.Errorf("count capabilities: %w", err)
	}
	var all []uintptr
	for c := range uintptr(last) + 1 {
		all = append(all, c)
	}
	return all, nil
}

// selfCommand returns this program with its own standard files.
func selfCommand(ctx context.Context, args []string) *exec.Cmd {
	command := exec.CommandContext(ctx, "/proc/self/exe", args...)
	command.Args[0] = os.Args[0]
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	return command
}

// release maps the ids of a new process 1, lets it go on, and reads the result of its setup.
func release(ctx context.Context, command *exec.Cmd, letGo io.WriteCloser, reports io.Reader, m marker, ids idMapper) error {
	if ids != nil {
		if err := ids(ctx, command.Process.Pid); err != nil {
			if errors.Is(err, errMapping) {
				return err
			}
			return explain("map ids", err, m.Root)
		}
	}
	if _, err := letGo.Write([]byte{1}); err != nil {
		return fmt.Errorf("start the program inside: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(reports, 1<<16))
	if err != nil {
		return fmt.Errorf("read how the setting up went: %w", err)
	}
	var failed setupError
	switch err := json.Unmarshal(text, &failed); {
	case err != nil:
		return errors.New("the program ended before it was inside")
	case failed.Step == "":
		return nil
	case failed.Errno != 0:
		return explain(failed.Step, failed.Errno, m.Root)
	}
	return fmt.Errorf("%s: %s", failed.Step, failed.Message)
}

// explain converts a refusal to a [*ForbiddenError].
func explain(step string, err error, root bool) error {
	for _, refusal := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.EINVAL, unix.ENOSYS} {
		if errors.Is(err, refusal) {
			return forbiddance{proc: os.DirFS("/proc"), command: os.Args, root: root}.explain(step, err)
		}
	}
	return fmt.Errorf("%s: %w", step, err)
}

// exitCode returns the exit code as a shell does: the exit code, or 128 plus the signal.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// handedOn are the signals that a process forwards to its child.
func handedOn() []os.Signal {
	return []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP}
}

// handOn forwards each signal. A signal that comes after the process has ended is dropped.
func handOn(signals <-chan os.Signal, to *os.Process) {
	for s := range signals {
		_ = to.Signal(s)
	}
}

// AsOrdinaryUser returns a command that runs this program with args as an ordinary user with the id
// uid: without privileges, with only the group of the same id, outside of any sandbox of the caller
// (its own sandbox is then a nested one). The caller has to be root. With an id that /etc/subuid
// does not name, it behaves like a user with a single id.
func AsOrdinaryUser(ctx context.Context, uid uint32, args ...string) *exec.Cmd {
	command := selfCommand(ctx, args)
	command.Stdin, command.Stdout, command.Stderr = nil, nil, nil
	command.Env = environment()
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return command
}
