// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/testing/filesystemtest"
)

// crash is something that a process does to a directory, and that may end anywhere.
type crash struct {
	files  []string // the directory's files before anything is installed, as in a shape
	mode   reconciler.Mode
	before func(n *crashNode) error
	deed   func(n *crashNode, o filesystem.Observer) error
	// chained means that a runtime calls the plugin from the beginning of the deed to its end.
	chained bool
}

func crashes() map[string]crash {
	list, single := []string{"10-calico.conflist", calicoList}, []string{"10-bridge.conf", bridgeSingle}
	install := func(n *crashNode) error { return n.keep("1", n.mode, nil) }
	keep := func(n *crashNode, o filesystem.Observer) error { return n.keep("1", n.mode, o) }
	upgrade := func(n *crashNode, o filesystem.Observer) error { return n.keep("2", n.mode, o) }
	uninstall := func(n *crashNode, o filesystem.Observer) error { return n.uninstall(o) }
	all := map[string]crash{}
	for _, mode := range modes() {
		add := func(name string, c crash) {
			c.mode = mode
			all[name+", "+string(mode)] = c
		}
		add("install", crash{files: list, deed: keep})
		add("upgrade", crash{files: list, before: install, deed: upgrade, chained: mode != reconciler.Standalone})
		add("uninstall", crash{files: list, before: install, deed: uninstall})
		add("restore", crash{files: list, deed: keep, before: func(n *crashNode) error { return errors.Join(install(n), n.disturb()) }})
		if mode == reconciler.Splice || mode == reconciler.Owned {
			add("install beside a single", crash{files: single, deed: keep})
			add("uninstall from a single", crash{files: single, before: install, deed: uninstall})
			add("restore a single that is back", crash{files: single, deed: keep, before: func(n *crashNode) error {
				return errors.Join(install(n), n.give("10-bridge.conf", strings.Replace(bridgeSingle, "rkt", "newer", 1)))
			}})
			add("follow a better one", crash{files: single, deed: keep, before: func(n *crashNode) error {
				return errors.Join(install(n), n.give("05-calico.conflist", calicoList))
			}})
		}
		if mode == reconciler.Splice {
			linked := []string{"10-calico.conflist", "->v1/net", "v1/", "", "v1/net", calicoList, "v2/", "", "v2/net", calicoList}
			changed := strings.Replace(calicoList, `"snat": true`, `"snat": false`, 1)
			add("install behind a link", crash{files: linked, deed: keep})
			add("upgrade behind a link", crash{files: linked, before: install, deed: upgrade, chained: true})
			add("uninstall behind a link", crash{files: linked, before: install, deed: uninstall})
			add("restore behind a link", crash{files: linked, deed: keep, before: func(n *crashNode) error {
				return errors.Join(install(n), n.give("v1/net", changed))
			}})
			add("follow a link that leads elsewhere", crash{files: linked, deed: keep, before: func(n *crashNode) error {
				return errors.Join(install(n), n.lead("10-calico.conflist", "v2/net"))
			}})
			add("follow a file in the place of a link", crash{files: linked, deed: keep, before: func(n *crashNode) error {
				return errors.Join(install(n), os.Remove(filepath.Join(n.directory, "10-calico.conflist")), n.give("10-calico.conflist", changed))
			}})
			add("install behind a link to our choice", crash{files: linked, deed: func(n *crashNode, o filesystem.Observer) error { return n.keep("1", "", o) }})
			add("from a copy of what a link leads to", crash{files: linked, deed: keep, chained: true, before: func(n *crashNode) error {
				return n.keep("1", "", nil)
			}})
		}
		for _, other := range modes() {
			if mode != other {
				chained := mode != reconciler.Standalone && other != reconciler.Standalone
				add("change from "+string(other)+" to", crash{files: list, deed: keep, chained: chained, before: func(n *crashNode) error {
					return n.keep("1", other, nil)
				}})
			}
		}
	}
	return all
}

// TestCrashes ends the process at each call that changes something, with and without a power cut,
// and continues from the result: with the deed, and with an uninstall. After each call, even with a
// power cut, a runtime must find a complete configuration.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for name, c := range crashes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newCrashNode(t, c)
			if c.before != nil {
				n.must(c.before(n))
			}
			start := n.tree()
			n.put(start, nil)
			counter := &filesystemtest.Fault{Next: n.disk}
			n.must(c.deed(n, n.watched(counter)))
			n.end = n.tree()
			crashes := n.crashes()
			for call := range counter.Count() {
				n.must(crashes.EndBefore(call+1, start))
			}
			t.Logf("%d calls, %d different trees left", counter.Count(), crashes.Different())
		})
	}
}

// TestRemoveTakesWhatKilledProcessesWereWriting runs the uninstall right after the kill.
func TestRemoveTakesWhatKilledProcessesWereWriting(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.DropIn)
	n.options.Now = nil
	n.write("10-calico.conflist", calicoList, 0o644)
	before := dump(t, n.directory)
	n.install()
	n.write("10-calico.conflist.tmp.0123456789abcdef", "half", 0o600)
	n.write("k8s-pod-network/99-mesh-cni.conf.tmp.0123456789abcdef", "half", 0o600)
	n.remove()
	n.want("after the uninstall", before)
}

// TestRemoveLeavesWhatAnotherPluginIsWriting runs the uninstall beside another mesh's daemon.
func TestRemoveLeavesWhatAnotherPluginIsWriting(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.options.Now, n.options.Shared = nil, true
	n.write("10-calico.conflist", calicoList, 0o644)
	n.install()
	n.write("10-calico.conflist.tmp.0123456789abcdef", "half", 0o600)
	n.remove()
	if got := dump(t, n.directory); !strings.Contains(fmt.Sprint(got), "half") {
		t.Errorf("after the uninstall: %v", got)
	}
}

// crashNode is a node whose directory and claim are saved and restored as a tree.
type crashNode struct {
	*node
	crash    crash
	root     string
	disk     *filesystemtest.Disk
	chained  bool
	original filesystemtest.Tree // the directory without us
	end      filesystemtest.Tree
	good     map[string]bool // the directories that a reader has accepted
	where    string          // the crash, for messages
}

func newCrashNode(t *testing.T, c crash) *crashNode {
	t.Helper()
	n := &crashNode{node: newNode(t, c.mode), crash: c, good: map[string]bool{}, where: "undisturbed"}
	n.root = filepath.Dir(n.directory)
	shape{files: c.files}.lay(t, n.directory)
	n.original = n.networks(n.tree())
	return n
}

func (n *crashNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s: %v", n.where, err)
	}
}

func (n *crashNode) as(version string, mode reconciler.Mode, o filesystem.Observer) (*reconciler.Reconciler, context.Context) {
	n.t.Helper()
	o = filesystemtest.WithoutSyncs(orNone(o))
	options := n.options
	options.Want.Plugin, options.Want.Mode = mesh(version), mode
	options.Claims = reconciler.ClaimFile{Path: n.claim, Calls: o}
	r, err := reconciler.New(options)
	n.must(err)
	return r, filesystem.WithObserver(context.Background(), o)
}

func orNone(o filesystem.Observer) filesystem.Observer {
	if o == nil {
		return &filesystemtest.Fault{}
	}
	return o
}

func (n *crashNode) keep(version string, mode reconciler.Mode, o filesystem.Observer) error {
	r, ctx := n.as(version, mode, o)
	_, err := r.Install(ctx)
	return err
}

func (n *crashNode) uninstall(o filesystem.Observer) error {
	r, ctx := n.as("1", n.mode, o)
	_, err := r.Remove(ctx)
	return err
}

// disturb undoes the installation: it rewrites the list, or removes our own file.
func (n *crashNode) disturb() error {
	if n.mode == reconciler.Splice {
		return n.give("10-calico.conflist", strings.Replace(calicoList, `"snat": true`, `"snat": false`, 1))
	}
	return os.Remove(filepath.Join(n.directory, filepath.FromSlash(n.place())))
}

func (n *crashNode) give(name, content string) error {
	n.original[name] = filesystemtest.File{Mode: 0o644, Content: content}
	return os.WriteFile(filepath.Join(n.directory, name), []byte(content), 0o644)
}

func (n *crashNode) lead(link, target string) error {
	n.original[link] = filesystemtest.File{Mode: n.original[link].Mode, Content: target}
	temporary := filepath.Join(n.directory, "new")
	return errors.Join(os.Symlink(target, temporary), os.Rename(temporary, filepath.Join(n.directory, link)))
}

// put gives the node a tree, on a disk like the one given, or else entirely durable.
func (n *crashNode) put(tree filesystemtest.Tree, on *filesystemtest.Disk) {
	n.t.Helper()
	disk, err := tree.Put(n.root, on)
	n.must(err)
	n.disk, n.chained = disk, n.crash.chained
}

func (n *crashNode) tree() filesystemtest.Tree {
	n.t.Helper()
	tree, err := filesystemtest.Read(n.root)
	n.must(err)
	return tree
}

func (n *crashNode) crashes() *filesystemtest.Crashes {
	return &filesystemtest.Crashes{Root: n.root, Same: normal, GoOn: n.goOn, Deed: func(where string, o filesystem.Observer, on *filesystemtest.Disk) {
		n.where, n.disk, n.chained = where, on, n.crash.chained
		_ = n.crash.deed(n, n.watched(o))
	}}
}

// goOn restarts after a crash, once with the deed and once with an uninstall.
func (n *crashNode) goOn(where string, left filesystemtest.Tree, on *filesystemtest.Disk) {
	n.t.Helper()
	n.where = where
	n.put(left, on)
	n.must(n.crash.deed(n, n.watched(n.disk)))
	if diff := cmp.Diff(normal(n.end), normal(n.tree())); diff != "" {
		n.t.Errorf("%s, then done again (-want +got):\n%s", n.where, diff)
	}
	n.put(left, on)
	n.chained = false
	n.must(n.uninstall(n.watched(n.disk)))
	if diff := cmp.Diff(n.original, n.networks(n.tree())); diff != "" {
		n.t.Errorf("%s, then uninstalled (-want +got):\n%s", n.where, diff)
	}
}

// watched looks after each call that readers can notice, and at what each power cut would leave.
func (n *crashNode) watched(next filesystem.Observer) filesystem.Observer {
	return filesystemtest.Func(func(call filesystem.Call, do func() error) error {
		err := next.Observe(call, do)
		if err != nil || filesystem.IsTemporary(filepath.Base(call.Path)) && call.To == "" {
			return err
		}
		n.look(n.disk.Tree())
		for _, cut := range n.disk.PowerCuts() {
			n.look(cut)
		}
		return nil
	})
}

// look loads the directory with libcni, as the container runtime does.
func (n *crashNode) look(tree filesystemtest.Tree) {
	n.t.Helper()
	networks := n.networks(tree)
	key := fmt.Sprint(n.chained, networks)
	if n.good[key] {
		return
	}
	directory := n.t.TempDir()
	n.must(networks.Materialise(directory))
	list, file, err := load(directory, true)
	if err != nil {
		n.t.Errorf("%s: a reader finds: %v", n.where, err)
	} else if n.chained && calls(list) == 0 {
		n.t.Errorf("%s: %s has only the plugins %q", n.where, file, chain(list))
	} else {
		n.good[key] = true
	}
}

func (n *crashNode) networks(tree filesystemtest.Tree) filesystemtest.Tree {
	part := filesystemtest.Tree{}
	for name, file := range tree {
		if rest, ok := strings.CutPrefix(name, filepath.Base(n.directory)+"/"); ok {
			part[rest] = file
		}
	}
	return part
}

// normal omits files with random names, which a later process removes.
func normal(tree filesystemtest.Tree) filesystemtest.Tree {
	same := maps.Clone(tree)
	for _, name := range slices.Collect(maps.Keys(tree)) {
		if filesystem.IsTemporary(filepath.Base(name)) {
			delete(same, name)
		}
	}
	return same
}

// returning writes a file when a temporary file for it is created.
type returning struct{ path, content string }

func (r returning) Observe(call filesystem.Call, do func() error) error {
	if call.Operation == filesystem.Create && strings.HasPrefix(call.Path, r.path+".") {
		if err := os.WriteFile(r.path, []byte(r.content), 0o644); err != nil {
			return err
		}
	}
	return do()
}

// TestNewerSingleStays has another program write its configuration anew while an uninstall is about
// to restore it as it was.
func TestNewerSingleStays(t *testing.T) {
	t.Parallel()
	n := newCrashNode(t, crash{files: []string{"10-bridge.conf", bridgeSingle}, mode: reconciler.Splice})
	n.must(n.keep("1", n.mode, nil))
	path, newer := filepath.Join(n.directory, "10-bridge.conf"), strings.Replace(bridgeSingle, "rkt", "newer", 1)
	if _, err := os.Lstat(path); err == nil {
		t.Fatal("the single configuration is still in its place")
	}
	if err := n.uninstall(returning{path, newer}); err != nil && !errors.Is(err, filesystem.ErrChanged) {
		t.Error(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != newer {
		t.Errorf("%v, the configuration is\n%s\nwant\n%s", err, data, newer)
	}
}
