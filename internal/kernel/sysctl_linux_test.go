// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

func TestSysctls(t *testing.T) {
	t.Parallel()
	one, other := newNamespace(t), newNamespace(t)
	const key = "ipv4/ip_default_ttl"
	before, err := other.ReadSysctl(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.WriteSysctl(key, "77"); err != nil {
		t.Fatal(err)
	}
	if got, err := one.ReadSysctl(key); err != nil || strings.TrimSpace(got) != "77" {
		t.Errorf("got %q and %v, want 77", got, err)
	}
	if got, err := other.ReadSysctl(key); err != nil || got != before {
		t.Errorf("another namespace: got %q and %v, it was %q", got, err, before)
	}
	if err := one.WriteSysctl(key, "many"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no number: got %v, want EINVAL", err)
	}
	if err := one.WriteSysctl("ipv4/none", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such parameter: got %v, want ErrNotExist", err)
	}
}

// TestSysctlsOfAReadOnlyFileSystem has parameters in a file system that cannot be written to, as a
// container has them: those that a message of the kernel can set for a link are set, and others are
// refused.
func TestSysctlsOfAReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	in := newNamespace(t)
	if err := in.Change("add a link", func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire0"}, PeerName: "wire1"})
	}); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	path := filepath.Join(directory, "file")
	if err := unix.Mount("tmpfs", directory, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(directory, unix.MNT_DETACH) })
	err := os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = unix.Mount("", directory, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	write := func(key, value string) error {
		return in.Change("write a parameter", func() error { return kernel.WriteSysctlAt(path, key, value) })
	}
	for _, value := range []string{"2", "1", "0"} {
		err := write("ipv4/conf/wire0/rp_filter", value)
		if got, readErr := in.ReadSysctl("ipv4/conf/wire0/rp_filter"); err != nil || readErr != nil || strings.TrimSpace(got) != value {
			t.Errorf("got %q, %v, %v, want %s", got, err, readErr, value)
		}
	}
	for key, value := range map[string]string{
		"ipv4/conf/wire0/accept_local": "1", "ipv4/conf/all/rp_filter": "2", "ipv4/conf/none/rp_filter": "2", "ipv4/conf/wire0/rp_filter": "loose",
	} {
		if err := write(key, value); err == nil {
			t.Errorf("%s=%s is taken to be written", key, value)
		}
	}
}
