// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// setupError is the result of the first steps inside, reported to the process outside. An empty
// step means success.
type setupError struct {
	Step    string
	Errno   unix.Errno
	Message string
}

// setUp prepares the bare namespaces, and reports to the process outside.
func setUp(m marker) (Info, error) {
	report := os.NewFile(setupReport, "report")
	outcome := furnish()
	text, err := json.Marshal(outcome)
	if err != nil {
		return Info{}, err
	}
	_, err = report.Write(text)
	if err := errors.Join(err, report.Close()); err != nil {
		return Info{}, fmt.Errorf("tell the process outside: %w", err)
	}
	if outcome.Step != "" {
		return Info{ExitCode: 1}, nil // the process outside reports why
	}
	if err := m.countIDs(); err != nil {
		return Info{}, err
	}
	if err := reserveMainThread(); err != nil {
		return Info{}, err
	}
	m.Stage = stageInside
	if err := os.Setenv(markerVariable, m.String()); err != nil {
		return Info{}, err
	}
	return m.info(), nil
}

// furnish makes the mounts private, mounts the sandbox's own /proc and sets the loopback interface
// up.
func furnish() setupError {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"make mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount /proc", func() error {
			return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}},
		{"set up loopback interface", func() error {
			loopback, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(loopback)
		}},
	} {
		if err := step.do(); err != nil {
			outcome := setupError{Step: step.name, Message: err.Error()}
			errors.As(err, &outcome.Errno)
			return outcome
		}
	}
	return setupError{}
}

// countIDs asks the kernel whether there is more than one id. Root may be root of a user namespace
// with just one.
func (m *marker) countIDs() error {
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("count ids: %w", err)
		}
		if fields := strings.Fields(string(text)); len(fields) == 3 && fields[2] == "1" && !m.SingleID {
			m.SingleID, m.Reason = true, "the user namespace that this was started in maps a single id"
		}
	}
	return nil
}

// reserveMainThread keeps every other goroutine off the main thread for good. A goroutine that
// enters a namespace there would change what other processes see in /proc/self/ns/net, the
// namespace in which this process started.
func reserveMainThread() error {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		return nil // this goroutine, which is main's, keeps it
	}
	held := make(chan bool)
	go holdMainThread(held, mostHeldThreads)
	found := <-held
	runtime.UnlockOSThread()
	if !found {
		return errors.New("sandbox: some goroutine keeps the main thread: call Enter before anything that locks threads, such as signal.Notify")
	}
	return nil
}

// mostHeldThreads limits the search for the main thread: Go aborts the program at 10,000 threads.
const mostHeldThreads = 200

// holdMainThread repeats itself until it runs on the main thread, and stays there. It holds every
// other thread that it gets until the search is over, so that it does not get it again; after so
// many threads the search ends.
func holdMainThread(held chan<- bool, most int) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		held <- true
		select {}
	}
	found := false
	if most > 0 {
		next := make(chan bool)
		// By a timer: the main thread may be the one that waits for the network, and only a timer
		// makes it look for other work.
		time.AfterFunc(time.Millisecond, func() { holdMainThread(next, most-1) })
		found = <-next
	}
	runtime.UnlockOSThread()
	held <- found
}
