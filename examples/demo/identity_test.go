// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func TestIDMap(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "uid_map")
	if err := os.WriteFile(path, []byte("         0       1000          1\n         1     100000      65535\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint32]bool{0: true, 1: true, 1337: true, 65535: true, 65536: false, 4000000000: false} {
		if got, err := hasID(path, id); err != nil || got != want {
			t.Errorf("id %d exists: %v, %v, want %v", id, got, err, want)
		}
	}
}

func TestIDMapOfAnotherForm(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0 0\n", "x 0 1\n", "0 0 x\n"} {
		path := filepath.Join(t.TempDir(), "uid_map")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if has, err := hasID(path, 0); err == nil {
			t.Errorf("%q has id 0: %v, want an error", text, has)
		}
	}
}

func TestApplicationOf(t *testing.T) {
	t.Parallel()
	id := func(n int64) *int64 { return &n }
	pod := interception.Pod{
		RunAsUser: id(2000), RunAsGroup: id(3000),
		Containers: []interception.Container{{Name: "app", RunAsUser: id(1000)}, {Name: "bad", RunAsUser: id(1<<32 - 1)}},
	}
	if got, err := applicationOf(pod, "app"); err != nil || got != (identity{1000, 3000}) {
		t.Errorf("the container's user and the pod's group: got %v, %v", got, err)
	}
	if got, err := applicationOf(interception.Pod{}, "app"); err != nil || got != (identity{}) {
		t.Errorf("nothing said: got %v, %v, want root", got, err)
	}
	if got, err := applicationOf(pod, "bad"); err == nil {
		t.Errorf("no id: got %v, want an error", got)
	}
}
