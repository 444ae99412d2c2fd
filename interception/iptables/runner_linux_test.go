// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// TestLocalNames starts a program that sees no name service, and leaves the host's file alone.
func TestLocalNames(t *testing.T) {
	t.Parallel()
	const path = "/etc/nsswitch.conf"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: the C library's file is needed to be covered: install base-files", err)
	}
	ns := newPod(t)
	out, err := iptables.WithLocalNames(ns.File(), exec.CommandContext(t.Context(), "sh", "-c", "cat "+path+"; readlink /proc/self/ns/net"))
	if want := fmt.Sprintf("net:[%d]\n", ns.ID().Inode); err != nil || out != want {
		t.Errorf("the program sees %q and %v, want the pod's namespace %q alone", out, err, want)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file is covered for others, too: %v", err)
	}
}

// TestEnvironment starts programs with the given environment, and nothing else.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	count := &counted{Runner: iptables.DefaultRunner()}
	plan := capture(t, 15001, nothingMore)
	if err := dataplane(t, iptables.Options{Runner: count}).Apply(t.Context(), newPod(t).Netns, plan); err != nil {
		t.Fatal(err)
	}
	for _, command := range count.commands {
		want := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "XTABLES_LOCKFILE=/proc/self/fd/3"}
		if diff := cmp.Diff(want, command.Env); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"--noflush", "-w", "5"}, command.Args[1:]); diff != "" {
			t.Errorf("arguments (-want +got):\n%s", diff)
		}
	}
}

// TestLockFile has another process hold the lock of the machine.
func TestLockFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "xtables.lock")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ns := newPod(t)
	dp := dataplane(t, iptables.Options{Flavour: iptables.Legacy, LockFile: path, Wait: time.Nanosecond})
	plan := capture(t, 15001, nothingMore)
	if err := dp.Apply(t.Context(), ns.Netns, plan); err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("got %v, want an error about the lock", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
		t.Error(err)
	}
}

// TestContextEnds has a program that never ends.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	endless := map[string][]string{"ip6tables-nft-restore": {"sh", "-c", "exec sleep 1000"}}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := dataplane(t, iptables.Options{Flavour: iptables.NFT, Programs: endless}).Apply(ctx, ns.Netns, capture(t, 15001, nothingMore))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	if left := ns.rules(t); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// userPod returns a namespace of a user namespace of its own, as with hostUsers: false.
func userPod(t *testing.T) *interception.Netns {
	t.Helper()
	made, err := sandbox.NewNamespaceOfUsers(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	ns, err := interception.OpenNetns(made.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func ofUsers(t *testing.T) *interception.Plan {
	t.Helper()
	return capture(t, 15001, func(b *interception.Builder) {
		c := b.NAT("own")
		c.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections of users")
		c.Do("a.user", interception.Match{UID: interception.Is(interception.UIDs(0))}, interception.Return{}, "a user")
	})
}

// TestUserNamespace applies conditions on an owner to a pod of a user namespace: this needs
// nsenter.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	plan := ofUsers(t)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns := userPod(t)
		err := dataplane(t, iptables.Options{Flavour: flavour}).Apply(t.Context(), ns, plan)
		if info, _ := sandbox.Enter(t.Context()); flavour == iptables.Legacy && !info.Root {
			// Only the host's root can use iptables-legacy in a namespace made before its root got
			// a number. The kernel has one of the two files, or both.
			if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "_tables_names: permission denied") {
				t.Errorf("as an ordinary user: got %v, want an error about the file that cannot be read", err)
			}
			return
		}
		if !errors.Is(err, interception.ErrUnsupported) || !strings.Contains(err.Error(), "Options.Nsenter") {
			t.Errorf("without nsenter: got %v, want ErrUnsupported and the option", err)
		}
		if err := dataplane(t, iptables.Options{Flavour: flavour}).Apply(t.Context(), ns, capture(t, 15001, nothingMore)); err != nil {
			t.Errorf("without a condition on an owner: %v", err)
		}
		dp := dataplane(t, iptables.Options{Flavour: flavour, Nsenter: []string{"nsenter"}})
		if err := dp.Apply(t.Context(), ns, plan); err != nil {
			t.Error(err)
		}
		state, err := dp.Observe(t.Context(), ns, plan.Owner)
		if drifts := interception.Diff(plan, state); err != nil || drifts != nil {
			t.Errorf("observed: %v, %v", drifts, err)
		}
		if err := dp.Remove(t.Context(), ns, plan.Owner); err != nil {
			t.Error(err)
		}
	})
}

// TestMissingNsenter distinguishes a missing nsenter from a missing program that nsenter starts,
// for which another flavour may exist.
func TestMissingNsenter(t *testing.T) {
	t.Parallel()
	none := func(flavour iptables.Flavour) map[string][]string {
		programs := map[string][]string{}
		for _, family := range []string{"iptables", "ip6tables"} {
			programs[fmt.Sprintf("%s-%s-restore", family, flavour)] = []string{"/no/such/program"}
		}
		return programs
	}
	ns, plan := userPod(t), ofUsers(t)
	for _, test := range []struct {
		options iptables.Options
		install string
	}{
		{iptables.Options{Nsenter: []string{"no-such-nsenter"}}, "without the program no-such-nsenter"},
		{iptables.Options{Nsenter: []string{"no-such-nsenter"}}, "install util-linux"},
		{iptables.Options{Nsenter: []string{"nsenter"}, Flavour: iptables.NFT, Programs: none(iptables.NFT)}, "install iptables"},
	} {
		err := dataplane(t, test.options).Apply(t.Context(), ns, plan)
		if !errors.Is(err, interception.ErrUnsupported) || !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), test.install) {
			t.Errorf("%v: got %v, want %s", test.options, err, test.install)
		}
	}
	if info, _ := sandbox.Enter(t.Context()); !info.Root {
		return // iptables-legacy is for the host's root, see TestUserNamespace
	}
	fallback := iptables.Options{Nsenter: []string{"nsenter"}, Programs: none(iptables.NFT)}
	if err := dataplane(t, fallback).Apply(t.Context(), ns, plan); err != nil {
		t.Errorf("without the programs of nf_tables: %v", err)
	}
}

// TestUnmappedIDs checks that the error names an id that the programs' user namespace lacks.
func TestUnmappedIDs(t *testing.T) {
	t.Parallel()
	plan := capture(t, 15001, func(b *interception.Builder) {
		b.NAT("own").Do("a.user", interception.Match{GID: interception.Is(interception.GIDs(7, 1000))}, interception.Return{}, "a group")
	})
	const small = "         0          0       1000\n"
	var refused *interception.ApplyError
	if err := iptables.Unmapped(plan, small, small); !errors.As(err, &refused) || refused.At != "a.user" || !strings.Contains(err.Error(), "group 1000") {
		t.Errorf("got %v, want the group", err)
	}
	const large = "0 100000 1000\n1000 5 4294966295\n"
	if err := iptables.Unmapped(plan, small, large); err != nil {
		t.Errorf("got %v", err)
	}
}
