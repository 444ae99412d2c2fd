// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
)

func TestConflistIsOneForLibcni(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		ipv6 bool
	}{{"both families", true}, {"IPv4 alone", false}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			node := nodeIn(t.TempDir())
			if err := node.make(); err != nil {
				t.Fatal(err)
			}
			written, err := node.writeConflist(test.ipv6)
			if err != nil {
				t.Fatal(err)
			}
			onDisk, err := os.ReadFile(node.conflist())
			if diff := cmp.Diff(string(written), string(onDisk)); err != nil || diff != "" {
				t.Errorf("the file isn't what was said, %v (-said +is):\n%s", err, diff)
			}
			list, err := libcni.NetworkConfFromFile(node.conflist())
			if err != nil {
				t.Fatal(err)
			}
			if list.Name != "k8s-pod-network" || len(list.Plugins) != 1 || list.Plugins[0].Network.Type != "bridge" {
				t.Errorf("libcni reads %+v, want a bridge", list)
			}
		})
	}
}

func TestTooDeepADirectoryIsRefused(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	fits := longestSocket - len(nodeIn("").feedSocket()) - len("/")
	if err := nodeIn(filepath.Join(parent, strings.Repeat("x", fits-len(parent)-len("/")))).make(); err != nil {
		t.Errorf("a directory that is short enough: %v", err)
	}
	directory := filepath.Join(parent, strings.Repeat("y", fits+1-len(parent)-len("/")))
	if err := nodeIn(directory).make(); err == nil || !strings.Contains(err.Error(), "set TMPDIR") {
		t.Errorf("%v, want one that says what to do", err)
	}
	if _, err := os.Lstat(directory); err == nil {
		t.Error("the directory was made")
	}
}
