// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

// tamper is a change to an installed directory after which the plugin has to be back.
type tamper struct {
	name string
	do   func()
}

// place returns the file with the plugin, according to the dry run.
func (n *node) place() string {
	n.t.Helper()
	plan, err := n.reconciler().Plan()
	if err != nil || plan.File == "" {
		n.t.Fatalf("plan: %v, %v", plan, err)
	}
	return plan.File
}

// tampers returns those that end in the state in which they began.
func (n *node) tampers(before map[string]string) []tamper {
	n.t.Helper()
	file := n.place()
	ours := n.read(filepath.Join(n.directory, file))
	edit := func(change func(string) string) func() {
		return func() { n.write(file, change(ours), n.mode0(file)) }
	}
	older, err := conflist.Insert([]byte(ours), mesh("0"))
	if err != nil || n.mode == reconciler.DropIn || n.mode == reconciler.Standalone {
		older.Out = []byte(strings.Replace(ours, `"version": "1"`, `"version": "0"`, 1))
	}
	all := []tamper{
		{"an older version", edit(func(string) string { return string(older.Out) })},
		{"reordering", edit(n.reorder)},
	}
	if n.mode == reconciler.Splice {
		// The owner of the list overwrites it, or deletes or renames and recreates it.
		rewrite := func() { n.rewrite(before, file) }
		return append(all, tamper{"overwriting", rewrite},
			tamper{"deleting", func() { n.unlink(file); rewrite() }},
			tamper{"truncating", func() { n.write(file, "", 0o644); n.tolerate(); rewrite() }},
			tamper{"half of it", func() { n.write(file, ours[:len(ours)/2], 0o644); n.tolerate(); rewrite() }},
		)
	}
	return append(all,
		tamper{"deleting", func() { n.unlink(file) }},
		tamper{"truncating", edit(func(string) string { return "" })},
		tamper{"half of it", edit(func(s string) string { return s[:len(s)/2] })},
		tamper{"blanks", edit(func(s string) string { return s + "\n\n" })},
		tamper{"renaming by Cilium", func() { n.rename(file, file+".cilium_bak") }},
		tamper{"wrong permissions", func() { n.write(file, ours, 0o666) }},
		tamper{"the claim's loss", func() { n.unlink("../mesh-cni.claim") }},
	)
}

// reorder moves the plugin's entry before all others; in a file without others, its last key.
func (n *node) reorder(ours string) string {
	n.t.Helper()
	if n.mode == reconciler.DropIn || n.mode == reconciler.Standalone {
		reordered := strings.Replace(strings.Replace(ours, ",\n  \"list\": []", "", 1), "{", "{\n  \"list\": [],", 1)
		if len(reordered) != len(ours) {
			n.t.Fatalf("the file has another form:\n%s", ours)
		}
		return reordered
	}
	without, err := conflist.Remove([]byte(ours), meshType)
	if err != nil {
		n.t.Fatal(err)
	}
	network, err := conflist.LoadNetwork(without.Out, true)
	if err != nil {
		n.t.Fatal(err)
	}
	first, _, err := conflist.Find(without.Out, network.Types[0])
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.Replace(string(without.Out), string(first.Body), string(mesh("1").Body)+", "+string(first.Body), 1)
}

// mode0 returns a file's permission bits.
func (n *node) mode0(file string) os.FileMode {
	n.t.Helper()
	info, err := os.Lstat(filepath.Join(n.directory, file))
	if err != nil {
		n.t.Fatal(err)
	}
	return info.Mode().Perm()
}

// rewrite writes the content from before, as its owner would.
func (n *node) rewrite(before map[string]string, file string) {
	n.t.Helper()
	stem := strings.TrimSuffix(file, filepath.Ext(file))
	for _, name := range []string{stem + ".conf", stem + ".json", file} {
		if shown, ok := before[name]; ok {
			_, content, _ := strings.Cut(shown, " ")
			n.write(name, content, 0o644)
			return
		}
	}
	n.t.Fatalf("%s was made of nothing", file)
}

// tolerate lets the daemon see a state that is about to be corrected.
func (n *node) tolerate() {
	n.t.Helper()
	if _, err := n.reconciler().Install(n.context); err != nil && !errors.Is(err, reconciler.ErrWaiting) && !errors.Is(err, reconciler.ErrRefused) {
		n.t.Errorf("while a file is half written: %v", err)
	}
}

func (n *node) unlink(file string) {
	n.t.Helper()
	if err := os.Remove(filepath.Join(n.directory, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
}

func (n *node) rename(from, to string) {
	n.t.Helper()
	if err := os.Rename(filepath.Join(n.directory, from), filepath.Join(n.directory, to)); err != nil {
		n.t.Fatal(err)
	}
}
