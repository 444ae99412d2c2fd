// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
