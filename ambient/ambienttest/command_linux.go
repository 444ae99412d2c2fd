// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// command is a proxy that is a process of its own, with its own network namespace, as ztunnel's
// container has: ztunnel's own servers listen there, and those of two proxies do not meet.
type command struct {
	process *exec.Cmd
	ended   chan struct{}

	mu    sync.Mutex
	gone  bool // its number may be another process's
	asked bool // it was told to end
}

// startCommand starts the program. Its process group dies with ctx, with the instance, and with
// this process.
func startCommand(ctx context.Context, o StartOptions) (*command, error) {
	if err := errors.Join(o.Numbers.Validate(), o.foreignTo()); err != nil {
		return nil, err
	}
	environment, err := o.environment()
	if err != nil {
		return nil, err
	}
	words := strings.Fields(o.Command)
	if len(words) == 0 {
		return nil, fmt.Errorf("start the proxy: %q names no program", o.Command)
	}
	c := &command{process: exec.CommandContext(ctx, words[0], words[1:]...), ended: make(chan struct{})} //nolint:gosec // it is whose tests it is
	c.process.Env = append(c.process.Environ(), environment...)
	c.process.Stdout, c.process.Stderr = o.Output, o.Output
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	c.process.Cancel = func() error { return c.end(unix.SIGKILL) }
	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s as the proxy: %w", o.Command, err)
	}
	return c, nil
}

// run runs the process from a thread in a network namespace of the process's own. The thread lives
// as long as the process, which the kernel kills when its parent thread ends (prctl(2)). It stays
// locked, so the runtime ends it: no other code runs in that namespace.
func (c *command) run(started chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The runtime never ends the main thread. While it is locked here, another one is used.
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(started)
		}()
		<-done
		return
	}
	err := enterOwnNetwork()
	if err == nil {
		err = c.process.Start()
	}
	started <- err
	if err != nil {
		return
	}
	// While its parent has not waited for it, no other process has its number.
	for errors.Is(unix.Waitid(unix.P_PID, c.process.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	c.mu.Lock()
	c.gone = true
	_ = unix.Kill(-c.process.Process.Pid, unix.SIGKILL) // what it has started, and is still there
	c.mu.Unlock()
	_ = c.process.Wait() // ProcessState has the result
	close(c.ended)
}

// end sends a signal to the process, and to what it has started if that is SIGKILL.
func (c *command) end(signal unix.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return os.ErrProcessDone
	}
	c.asked = true
	to := c.process.Process.Pid
	if signal == unix.SIGKILL {
		to = -to
	}
	return unix.Kill(to, signal)
}

// enterOwnNetwork makes a network namespace in which lo is up, and moves the thread there.
func enterOwnNetwork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make network namespace: %w (it takes CAP_SYS_ADMIN)", err)
	}
	loopback, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(loopback)
	}
	if err != nil {
		return fmt.Errorf("set up lo in the proxy's network namespace: %w", err)
	}
	return nil
}

// Close kills the process with all that it has started.
func (c *command) Close() error {
	if err := c.end(unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the proxy %s: %w", c.process, err)
	}
	<-c.ended
	if !c.asked {
		return fmt.Errorf("the proxy %s has ended by itself (%s): its output says why", c.process, c.process.ProcessState)
	}
	return nil
}

// Drain sends SIGTERM, waits until the process has ended or the context has, and kills it.
func (c *command) Drain(ctx context.Context) {
	_ = c.end(unix.SIGTERM) // it may have ended
	select {
	case <-c.ended:
	case <-ctx.Done():
		_ = c.end(unix.SIGKILL) // likewise
		<-c.ended
	}
}
