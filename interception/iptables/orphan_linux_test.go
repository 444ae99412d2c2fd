// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

// held is a restore program that reads its input, reports so, and waits for the signal to go on.
// The first word is its name, the second a directory with two named pipes.
const held = `cat >"$2/text" && echo >"$2/started" && cat "$2/go" && name=$1 text=$2/text && shift 2 && exec "$name" "$@" <"$text"`

// TestOrphans kills a process before the program that it has started does its work. The program
// holds the namespace's lock until its end, so the next Apply sees what it has done.
func TestOrphans(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		if directory, is := victim.Task(); is {
			beHeld(t, flavour, directory)
			return
		}
		directory, ns := t.TempDir(), newPod(t)
		old := capture(t, 15001, nothingMore)
		dp := dataplane(t, iptables.Options{Flavour: flavour})
		if err := dp.Apply(t.Context(), ns.Netns, old); err != nil {
			t.Fatal(err)
		}
		want := ns.rules(t)
		if err := os.Symlink(ns.Namespace.Path(), filepath.Join(directory, "netns")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"started", "go"} {
			if err := unix.Mkfifo(filepath.Join(directory, name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		process, err := victim.Start(t.Context(), t.Name(), directory)
		if err != nil {
			t.Fatal(err)
		}
		end, err := process.Run(victim.Ending{When: func() { _, _ = os.ReadFile(filepath.Join(directory, "started")) }})
		if err != nil || !end.Killed {
			t.Fatalf("%+v, %v", end, err)
		}
		lock, err := os.Open(ns.Namespace.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Close() }()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("the program is at work, and the lock: %v", err)
		}
		if err := os.WriteFile(filepath.Join(directory, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := dp.Apply(t.Context(), ns.Netns, old); err != nil {
			t.Error(err)
		}
		if got := ns.rules(t); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func beHeld(t *testing.T, flavour iptables.Flavour, directory string) {
	t.Helper()
	ns, err := interception.OpenNetns(filepath.Join(directory, "netns"), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	name := "iptables-" + string(flavour) + "-restore"
	dp := dataplane(t, iptables.Options{Flavour: flavour, Programs: map[string][]string{name: {"sh", "-c", held, "sh", name, directory}}})
	if err := victim.Serve(func() error { return dp.Apply(t.Context(), ns, capture(t, 15002, nothingMore)) }); err != nil {
		t.Fatal(err)
	}
}
