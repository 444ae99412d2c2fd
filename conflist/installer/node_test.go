// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

const (
	testPlugin  = "linkmesh-cni"
	testNetwork = `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "ptp"}]}`
)

type testNode struct {
	t       testing.TB
	root    string
	options Options // of the installers

	mu   sync.Mutex
	said []string // messages of events
}

func newTestNode(t testing.TB) *testNode {
	t.Helper()
	n := &testNode{t: t, root: t.TempDir()}
	for _, directory := range []string{"net.d", "bin", "second", "cache", "account", "source", "others"} {
		if err := os.Mkdir(n.in(directory), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	n.write("net.d/10-net.conflist", testNetwork)
	n.write("account/token", "secret")
	n.write("source/"+testPlugin, "a program")
	n.options = Options{
		Want:      reconciler.Want{Plugin: conflist.Plugin{Type: testPlugin}},
		SourceDir: n.in("source"), NetDir: n.in("net.d"), BinDir: n.in("bin"), RunDir: n.in("run"), CacheDir: n.in("cache"),
		OnEvent: func(e Event) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.said = append(n.said, e.String())
		},
	}
	return n
}

func (n *testNode) kubeconfig() *Kubeconfig {
	return &Kubeconfig{Host: "10.96.0.1", Port: "443", Insecure: true, TokenFile: n.in("account/token")}
}

func (n *testNode) in(name string) string { return filepath.Join(n.root, filepath.FromSlash(name)) }

func (n *testNode) write(name, text string) {
	n.t.Helper()
	if err := os.WriteFile(n.in(name), []byte(text), 0o700); err != nil { //nolint:gosec // some of the files are programs
		n.t.Fatal(err)
	}
}

func (n *testNode) read(name string) string {
	n.t.Helper()
	data, err := os.ReadFile(n.in(name))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

func (n *testNode) has(name string) bool {
	n.t.Helper()
	_, err := os.Lstat(n.in(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	return err == nil
}

func (n *testNode) saidTimes(text string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	times := 0
	for _, event := range n.said {
		if strings.Contains(event, text) {
			times++
		}
	}
	return times
}

func (n *testNode) installer() *Installer {
	n.t.Helper()
	i, err := New(n.options)
	if err != nil {
		n.t.Fatal(err)
	}
	return i
}

func (n *testNode) install() {
	n.t.Helper()
	if err := n.installer().Install(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) uninstall() {
	n.t.Helper()
	if err := n.installer().Uninstall(n.t.Context(), UninstallOptions{}); err != nil {
		n.t.Fatal(err)
	}
}
