// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
)

const meshType = "mesh-cni"

func mesh(version string) conflist.Plugin {
	return conflist.Plugin{Type: meshType, Body: fmt.Appendf(nil, `{"name": "mesh-cni", "type": "mesh-cni", "version": %q, "ipam": {}, "list": []}`, version)}
}

type node struct {
	t         testing.TB
	directory string
	claim     string
	mode      reconciler.Mode
	context   context.Context //nolint:containedctx // it covers everything that a test does to the node
	options   reconciler.Options
}

func newNode(t testing.TB, mode reconciler.Mode) *node {
	t.Helper()
	root := t.TempDir()
	n := &node{t: t, directory: filepath.Join(root, "net.d"), claim: filepath.Join(root, "mesh-cni.claim"), mode: mode}
	n.context = filesystem.WithObserver(context.Background(), unsynced{})
	if err := os.Mkdir(n.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	n.options = reconciler.Options{
		Directory: n.directory,
		Want:      reconciler.Want{Plugin: mesh("1"), Mode: mode},
		Claims:    reconciler.ClaimFile{Path: n.claim, Calls: unsynced{}},
		// No other program writes here at the same time: a file that ends too early is broken.
		Now: func() time.Time { return time.Now().Add(time.Hour) },
	}
	return n
}

// unsynced skips the syncs, which only a power cut would show and which take most of the time.
type unsynced struct{}

func (unsynced) Observe(call filesystem.Call, do func() error) error {
	if call.Operation == filesystem.Sync || call.Operation == filesystem.SyncDirectory {
		return nil
	}
	return do()
}

func (n *node) reconciler() *reconciler.Reconciler {
	n.t.Helper()
	r, err := reconciler.New(n.options)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *node) install() {
	n.t.Helper()
	if plan, err := n.reconciler().Install(n.context); err != nil {
		n.t.Fatalf("install: %v\n%v\n%v", err, plan, dump(n.t, n.directory))
	}
}

func (n *node) remove() {
	n.t.Helper()
	if plan, err := n.reconciler().Remove(n.context); err != nil {
		n.t.Fatalf("remove: %v\n%v", err, plan)
	}
	if _, err := os.Lstat(n.claim); err == nil {
		n.t.Error("there is a claim after the uninstall")
	}
}

func (n *node) want(what string, want map[string]string) {
	n.t.Helper()
	if diff := cmp.Diff(want, dump(n.t, n.directory)); diff != "" {
		n.t.Fatalf("%s: the directory (-want +got):\n%s", what, diff)
	}
}

func (n *node) loaded() *libcni.NetworkConfigList {
	list, _, err := load(n.directory, false)
	if err != nil {
		return nil
	}
	return list
}

func modes() []reconciler.Mode {
	return []reconciler.Mode{reconciler.Splice, reconciler.Owned, reconciler.DropIn, reconciler.Standalone}
}

// TestCorpus takes every shape in every mode through a life.
func TestCorpus(t *testing.T) {
	t.Parallel()
	all := corpus(t)
	if len(all) < 40 {
		t.Fatalf("%d shapes", len(all))
	}
	for name, s := range all {
		for _, mode := range modes() {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, mode)
				s.lay(t, n.directory)
				if strings.Contains(s.not, string(mode)) && !strings.Contains(s.not, string(mode)+"?") {
					n.wantRefused()
					return
				}
				n.life(s)
			})
		}
	}
}

func (n *node) wantRefused() {
	n.t.Helper()
	before := dump(n.t, n.directory)
	plan, err := n.reconciler().Install(n.context)
	if !errors.Is(err, reconciler.ErrWaiting) && !errors.Is(err, reconciler.ErrRefused) {
		n.t.Errorf("install: error %v, want a reason\n%v", err, plan)
	}
	n.want("after a refusal", before)
	if _, err := os.Lstat(n.claim); err == nil {
		n.t.Error("there is a claim")
	}
}

// life installs, upgrades and uninstalls, with tampering in between.
func (n *node) life(s shape) {
	n.t.Helper()
	before, network := dump(n.t, n.directory), n.loaded()
	n.install()
	installed := dump(n.t, n.directory)
	n.wantChain(network)
	claim := n.read(n.claim)
	n.install() // a restart
	n.want("after a restart", installed)
	if got := n.read(n.claim); got != claim {
		n.t.Errorf("the claim after a restart:\n%s\nbefore:\n%s", got, claim)
	}
	for _, tamper := range n.tampers(before) {
		tamper.do()
		n.install()
		if s.restyled || s.lasting {
			installed = dump(n.t, n.directory)
		}
		n.wantChain(network)
		n.want("after "+tamper.name, installed)
	}
	n.options.Want.Plugin = mesh("2")
	n.install()
	n.wantChain(network)
	upgraded := dump(n.t, n.directory)
	if cmp.Equal(installed, upgraded) {
		n.t.Error("an upgrade changed nothing")
	}
	n.options.Want.Plugin = mesh("1") // a rollback
	n.install()
	if !s.restyled {
		n.want("after a rollback", installed)
	}
	n.remove()
	n.want("after the uninstall", n.after(before, s))
}

// after is what is expected after an uninstall, which removes the plugin from all lists, even if
// another program put it there.
func (n *node) after(before map[string]string, s shape) map[string]string {
	n.t.Helper()
	if !s.lasting {
		return before
	}
	without := map[string]string{}
	for name, shown := range before {
		mode, content, _ := strings.Cut(shown, " ")
		if strings.HasPrefix(mode, "L") { // a link
			without[name] = shown
			continue
		}
		edit, err := conflist.Remove([]byte(content), meshType)
		if err != nil {
			n.t.Fatal(err)
		}
		without[name] = mode + " " + string(edit.Out)
	}
	return without
}

// wantChain checks that a runtime loads the same network as before, with the plugin once and after
// the first; in standalone mode, without the plugin.
func (n *node) wantChain(network *libcni.NetworkConfigList) {
	n.t.Helper()
	if n.mode == reconciler.Standalone {
		list, err := loadFile(filepath.Join(n.directory, "YYY-mesh-cni.conf"))
		if err != nil || calls(list) != 1 || list.Name != "mesh-cni" || list.CNIVersion != "1.0.0" {
			n.t.Errorf("standalone: %+v, %v", list, err)
		}
		return
	}
	list := n.loaded()
	if list == nil {
		n.t.Fatalf("a runtime loads nothing:\n%v", dump(n.t, n.directory))
	}
	var others []string
	for _, typ := range chain(network) {
		if typ != meshType {
			others = append(others, typ)
		}
	}
	var got []string
	for _, typ := range chain(list) {
		if typ != meshType {
			got = append(got, typ)
		}
	}
	if diff := cmp.Diff(others, got); diff != "" || calls(list) != 1 || chain(list)[0] == meshType {
		n.t.Errorf("a runtime calls %q, and did call %q", chain(list), chain(network))
	}
	if list.Name != network.Name || list.CNIVersion != network.CNIVersion {
		n.t.Errorf("a runtime loads network %q, version %q; it was %q, %q", list.Name, list.CNIVersion, network.Name, network.CNIVersion)
	}
}

func (n *node) read(path string) string {
	n.t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(content)
}

func (n *node) write(name, content string, mode os.FileMode) {
	n.t.Helper()
	path := filepath.Join(n.directory, name)
	err := os.WriteFile(path, []byte(content), mode)
	if mode&0o022 != 0 { // the umask keeps these bits from new files, and a daemon may have replaced the file by now
		err = errors.Join(err, os.Chmod(path, mode))
	}
	if err != nil {
		n.t.Fatal(err)
	}
}
