// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// runner starts programs with os/exec.
type runner struct{}

// maxOutput limits what is kept of a program's output: a listing of some hundred thousand rules.
const maxOutput = 64 << 20

// graceful is how long Run waits for the output after a program's end. Another program that is
// being started may hold a copy of the pipes until its exec, which takes a while on a busy machine.
const graceful = 10 * time.Second

// Run is [Runner.Run].
func (runner) Run(ctx context.Context, c Command) (Output, error) {
	if err := ctx.Err(); err != nil {
		return Output{}, err
	}
	stdout, stderr := &bounded{}, &bounded{}
	cmd := exec.CommandContext(ctx, locate(c.Args[0]), c.Args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, bytes.NewReader(c.Stdin), stdout, stderr
	cmd.ExtraFiles, cmd.WaitDelay = c.Files, graceful
	cmd.Dir = "/"
	var err error
	if c.LocalNames && asksForNames() {
		err = startWithLocalNames(c.Namespace, cmd)
	} else {
		err = namespace.Run(c.Namespace, cmd.Start) // a program inherits the namespaces of the thread that starts it
	}
	if err != nil {
		return Output{}, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	err = cmd.Wait()
	if ended := ctx.Err(); ended != nil && err != nil {
		err = errors.Join(ended, err)
	}
	if stdout.more {
		err = errors.Join(err, fmt.Errorf("it wrote more than %d bytes", maxOutput))
	}
	return Output{stdout.Bytes(), stderr.Bytes()}, err
}

// locate searches the usual directories for a program that is not in PATH: the container runtime
// may start CNI plugins with a PATH without the administrator's programs, or without PATH.
func locate(name string) string {
	if _, err := exec.LookPath(name); !errors.Is(err, exec.ErrNotFound) {
		return name
	}
	for _, directory := range filepath.SplitList(searchPath) {
		if path, err := exec.LookPath(filepath.Join(directory, name)); err == nil {
			return path
		}
	}
	return name
}

type bounded struct {
	bytes.Buffer
	more bool
}

// Write keeps what there is room for.
func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); len(p) > room {
		b.more = true
		b.Buffer.Write(p[:room])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// startWithLocalNames starts a program that sees the host's files, except those that lead lookups
// of users elsewhere: in the program's own mount namespace an empty file hides each of them.
func startWithLocalNames(in *os.File, cmd *exec.Cmd) error {
	return namespace.Run(in, func() error {
		if unix.Gettid() == os.Getpid() {
			// The runtime never ends the main thread, which would keep the mounts. Run keeps it
			// locked meanwhile, so the work goes to another thread.
			return startWithLocalNames(in, cmd)
		}
		runtime.LockOSThread() // once more than Run unlocks: the thread ends, and the mounts with it
		if err := maskNames(); err != nil {
			return err
		}
		return cmd.Start()
	})
}

// maskNames gives the thread a mount namespace in which only files answer lookups of users.
func maskNames() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	for _, path := range []string{nameServices, nameCache} {
		err := unix.Mount(os.DevNull, path, "", unix.MS_BIND, "")
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	return nil
}

// exitNotFound is the exit code of nsenter and shells when the program to start is missing.
const exitNotFound = 127

// nsenterError distinguishes a missing nsenter from a missing program that nsenter starts.
func nsenterError(nsenter string, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case notThere(err):
		return fmt.Errorf("%w %s: %w: install util-linux where this runs, or use nftables: the pod "+
			"has users of its own (hostUsers: false), and the kernel takes rules about the owner of a socket only from among these",
			errNoNsenter, nsenter, err)
	case errors.As(err, &exit) && exit.ExitCode() == exitNotFound:
		return fmt.Errorf("%w: %w", exec.ErrNotFound, err)
	default:
		return err
	}
}

// enterUsers makes the program start in the user namespace that owns the network namespace.
func (t *tools) enterUsers(c *Command) error {
	if t.options.Nsenter == nil {
		return fmt.Errorf("the network namespace belongs to another user namespace, where iptables has to run for conditions on a socket's owner: "+
			"%w without nsenter: set Options.Nsenter, or use nftables", interception.ErrUnsupported)
	}
	user := fmt.Sprintf("--user=/proc/self/fd/%d", firstFD+len(c.Files))
	c.Files = append(c.Files, t.users)
	c.Args = slices.Concat(t.options.Nsenter, []string{user, "--"}, c.Args)
	return nil
}

// foreignUsers opens the user namespace that owns ns (ioctl_ns(2)); nil if that is this process's.
func foreignUsers(ns *os.File) (*os.File, error) {
	connection, err := ns.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, errno := -1, error(nil)
	if err := connection.Control(func(namespace uintptr) {
		fd, errno = unix.IoctlRetInt(int(namespace), unix.NS_GET_USERNS)
	}); err != nil {
		return nil, err
	}
	if errno != nil {
		return nil, fmt.Errorf("ask for the user namespace that owns the network namespace: %w", errno)
	}
	owner := os.NewFile(uintptr(fd), "user namespace")
	theirs, err := owner.Stat()
	if err == nil {
		var ours os.FileInfo
		if ours, err = os.Stat("/proc/self/ns/user"); err == nil && !os.SameFile(theirs, ours) {
			return owner, nil
		}
	}
	return nil, errors.Join(err, owner.Close())
}
