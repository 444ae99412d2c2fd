// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// TestChange has the library change one of two namespaces.
func TestChange(t *testing.T) {
	t.Parallel()
	one, other := newNamespace(t), newNamespace(t)
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "mesh0"
	add := func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}) }
	for _, want := range []error{nil, unix.EEXIST} {
		if err := one.Change("add a link", add); !errors.Is(err, want) || errors.Is(err, kernel.ErrNoAnswer) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if err := other.Change("add a link", add); err != nil {
		t.Errorf("another namespace: %v", err)
	}
}

// TestChangeWithoutAnswer distinguishes what the kernel refuses from what it may have done.
func TestChangeWithoutAnswer(t *testing.T) {
	t.Parallel()
	in := newNamespace(t)
	for _, test := range []struct {
		err     error
		unknown bool
	}{
		{nil, false},
		{unix.EPERM, false},
		{fmt.Errorf("%w: in the kernel's words", unix.EINVAL), false},
		{unix.ENOBUFS, true},
		{unix.EAGAIN, true},
		{errors.New("wrong sender"), true},
	} {
		err := in.Change("nothing", func() error { return test.err })
		if !errors.Is(err, test.err) || errors.Is(err, kernel.ErrNoAnswer) != test.unknown {
			t.Errorf("of %v: got %v, want ErrNoAnswer to be %t", test.err, err, test.unknown)
		}
	}
}

// TestChangeThatPanics has the library read past the end of an answer and panic: the thread returns
// to its namespace, and the next change succeeds.
func TestChangeThatPanics(t *testing.T) {
	t.Parallel()
	in := newNamespace(t)
	var answer []byte
	for name, change := range map[string]func() error{
		"past the end": func() error { return fmt.Errorf("read %d", answer[4]) },
		"on purpose":   func() error { panic(unix.EPERM) },
	} {
		if err := in.Change("nothing", change); !errors.Is(err, kernel.ErrNoAnswer) || errors.Is(err, unix.EPERM) {
			t.Errorf("%s: got %v, want ErrNoAnswer", name, err)
		}
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "mesh0"
	if err := in.Change("add a link", func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}) }); err != nil {
		t.Errorf("the next: %v", err)
	}
}
