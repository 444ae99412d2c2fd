// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// tools are the programs, for one network namespace.
type tools struct {
	options Options
	ns      *os.File
	lock    *os.File // the programs' lock file; nil when a path is set
	users   *os.File // the user namespace that owns the network namespace; nil when it is this process's
}

// firstFD is the first of [Command.Files] in the program.
const firstFD = 3

func openTools(o Options, ns *os.File) (_ *tools, err error) {
	t := &tools{options: o, ns: ns}
	if t.users, err = foreignUsers(ns); err != nil {
		return nil, err
	}
	if o.LockFile == "" {
		// A file without a name needs no writable directory.
		fd, err := unix.MemfdCreate("xtables.lock", unix.MFD_CLOEXEC)
		if err != nil {
			t.close()
			return nil, fmt.Errorf("make a lock file: %w", err)
		}
		t.lock = os.NewFile(uintptr(fd), "xtables.lock")
	}
	return t, nil
}

func (t *tools) close() {
	for _, file := range []*os.File{t.lock, t.users} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// restore loads a text, and returns the program's name with its output.
func (t *tools) restore(ctx context.Context, which tool, text string) (string, Output, error) {
	name := which.name(restoreProgram)
	c := t.command(ctx, name, "--noflush", "-w", strconv.FormatInt(int64((t.options.Wait+time.Second-1)/time.Second), 10))
	c.Stdin = []byte(text)
	c.LocalNames = strings.Contains(text, "-owner ")
	if !c.LocalNames || t.users == nil {
		out, err := t.run(ctx, c)
		return name, out, err
	}
	if err := t.enterUsers(&c); err != nil {
		return name, Output{}, err
	}
	out, err := t.run(ctx, c)
	return name, out, nsenterError(c.Args[0], err)
}

// run runs a program, and ends it when its time is over. The caller's context may never end, and a
// program may start again whenever the pod changes its rules.
func (t *tools) run(ctx context.Context, c Command) (Output, error) {
	late := &overdueError{t.options.Wait + t.options.Timeout}
	ctx, cancel := context.WithTimeoutCause(ctx, late.after, late)
	defer cancel()
	out, err := t.options.Runner.Run(ctx, c)
	if err != nil && errors.Is(context.Cause(ctx), late) {
		err = fmt.Errorf("%w: %w", late, err)
	}
	return out, err
}

// overdueError means that a program did not end in time.
type overdueError struct{ after time.Duration }

// Error returns the time, and what the cause may be.
func (e *overdueError) Error() string {
	return fmt.Sprintf("it was ended after %v: rules in the network namespace may be changing all the time, or be too many", e.after)
}

func (t *tools) list(ctx context.Context, which tool) (listing, error) {
	name := which.name(saveProgram)
	out, err := t.run(ctx, t.command(ctx, name))
	if err != nil {
		return listing{}, programError(name, out, err)
	}
	l, err := parseListing(string(out.Stdout))
	if err != nil {
		return listing{}, fmt.Errorf("%s: %w", name, err)
	}
	for _, hidden := range l.hidden {
		if _, known := kindOf(hidden); known {
			return listing{}, fmt.Errorf("%s: table %s holds what iptables does not know: %w: see nft list table, and take it out, or use nftables",
				name, hidden, interception.ErrUnsupported)
		}
	}
	return l, nil
}

// listOwned lists an owner's chains, and the kernel's own in the same tables, however many others
// there are. It returns false when only a listing of everything can tell.
func (t *tools) listOwned(ctx context.Context, which tool, q question, prefix string) (listing, bool) {
	_, out, err := t.restore(ctx, which, strings.Join(q.lines, "\n")+"\n")
	if err != nil {
		return listing{}, false
	}
	return q.listing(string(out.Stdout), prefix)
}

// searchPath is where programs look for others, such as modprobe.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command starts a program. The program inherits the caller's lock of the namespace: when this
// process is killed, the program may still be at work, and no other call may run meanwhile.
func (t *tools) command(ctx context.Context, name string, args ...string) Command {
	words := t.options.Programs[name]
	if words == nil {
		words = []string{name}
	}
	lock, files := t.options.LockFile, []*os.File(nil)
	if t.lock != nil {
		lock, files = fmt.Sprintf("/proc/self/fd/%d", firstFD), []*os.File{t.lock}
	}
	if held := namespace.Held(ctx); held != nil {
		files = append(files, held)
	}
	return Command{
		Args:      slices.Concat(words, args),
		Env:       []string{"PATH=" + searchPath, "XTABLES_LOCKFILE=" + lock},
		Namespace: t.ns,
		Files:     files,
	}
}
