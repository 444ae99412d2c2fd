// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/testing/filesystemtest"
)

type tree = filesystemtest.Tree

var everyCall = flag.Bool("every-call", false, "TestCrashes and TestEachFailure stop at each call in every mode, and not at those of the configurations alone")

// crash is something that a process does to a node, and that may end anywhere.
type crash struct {
	mode     string            // the install mode; empty is splice
	networks map[string]string // content of the CNI configuration directory before the installation
	// before prepares the node for the deed.
	before func(n *crashNode) error
	deed   func(n *crashNode, o filesystem.Observer) error
	// captures reports that pods are captured from the beginning of the deed to its end.
	captures bool
}

func crashes() map[string]crash {
	list := map[string]string{"10-calico.conflist": calico}
	single := map[string]string{"10-bridge.conf": bridge}
	install := func(n *crashNode) error { return n.keep("v1", nil) }
	keep := func(n *crashNode, o filesystem.Observer) error { return n.keep("v1", o) }
	upgrade := func(n *crashNode, o filesystem.Observer) error { return n.keep("v2", o) }
	uninstall := func(n *crashNode, o filesystem.Observer) error { return n.uninstall(o) }
	all := map[string]crash{
		"install into a list":   {networks: list, deed: keep},
		"install into a single": {networks: single, deed: keep},
		"install again": {networks: single, deed: keep, before: func(n *crashNode) error {
			return errors.Join(n.keep("v1", nil), n.uninstall(nil))
		}},
		"restore an overwritten list": {networks: list, deed: keep, before: func(n *crashNode) error {
			return errors.Join(n.keep("v1", nil), n.replace("10-calico.conflist", strings.Replace(calico, `"snat": true`, `"snat": false`, 1)))
		}},
		"restore a single that is back": {networks: single, deed: keep, before: func(n *crashNode) error {
			return errors.Join(n.keep("v1", nil), n.replace("10-bridge.conf", strings.Replace(bridge, "rkt", "newer", 1)))
		}},
		"restore the binary": {networks: list, deed: keep, before: func(n *crashNode) error {
			return errors.Join(n.keep("v1", nil), os.WriteFile(filepath.Join(n.settings.BinDir, "istio-cni"), []byte("plugin v0"), 0o755))
		}},
		"move to a better sorting list": {networks: single, deed: keep, before: func(n *crashNode) error {
			return errors.Join(n.keep("v1", nil), n.replace("05-calico.conflist", calico))
		}},
		"upgrade":                          {networks: list, before: install, deed: upgrade, captures: true},
		"upgrade on a single":              {networks: single, before: install, deed: upgrade, captures: true},
		"uninstall from a list":            {networks: list, before: install, deed: uninstall},
		"uninstall from what was a single": {networks: single, before: install, deed: uninstall},
	}
	for mode, file := range installedFiles() {
		if mode == "splice" { // the cases above
			continue
		}
		chained := mode != "standalone"
		all["install, "+mode] = crash{mode: mode, networks: list, deed: keep}
		all["restore, "+mode] = crash{mode: mode, networks: list, deed: keep, before: func(n *crashNode) error {
			return errors.Join(n.keep("v1", nil), os.Remove(filepath.Join(n.settings.NetDir, file)))
		}}
		all["upgrade, "+mode] = crash{mode: mode, networks: list, before: install, deed: upgrade, captures: true}
		all["uninstall, "+mode] = crash{mode: mode, networks: list, before: install, deed: uninstall}
		all["change to "+mode] = crash{mode: mode, networks: list, deed: keep, captures: chained, before: func(n *crashNode) error {
			n.settings.AskedMode = "splice"
			err := n.keep("v1", nil)
			n.settings.AskedMode = mode
			return err
		}}
	}
	return all
}

// installedFiles returns the modes, and the file that has the plugin then, if the network's is
// 10-calico.conflist.
func installedFiles() map[string]string {
	return map[string]string{
		"splice": "10-calico.conflist", "owned": "02-istio-cni.conflist", "dropin": "k8s-pod-network/99-istio-cni.conf", "standalone": "YYY-istio-cni.conf",
	}
}

// instants returns the calls of a deed to stop at, counted from 1. Outside splice mode these are
// the calls that change CNI configurations, since all others are the same in every mode; all calls,
// if that is requested.
func (c crash) instants(n *crashNode, calls []filesystem.Call) []int {
	var at []int
	for i, call := range calls {
		if relative, err := filepath.Rel(n.settings.NetDir, call.Path); *everyCall || c.mode == "" || err == nil && filepath.IsLocal(relative) {
			at = append(at, i+1)
		}
	}
	return at
}

// watchedCalls does a deed on the node as it is, and returns its calls.
func (c crash) watchedCalls(n *crashNode, next filesystem.Observer) []filesystem.Call {
	n.t.Helper()
	var calls []filesystem.Call
	n.must(c.deed(n, filesystemtest.Func(func(call filesystem.Call, do func() error) error {
		// The data is not ours to keep.
		calls = append(calls, filesystem.Call{Operation: call.Operation, Path: call.Path, To: call.To})
		return next.Observe(call, do)
	})))
	n.end = n.tree()
	return calls
}

// TestCrashes ends the process at each call that changes a file, with and without a power cut, and
// continues from what is left: with the deed itself, and with an uninstall.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for name, c := range crashes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newCrashNode(t, c)
			if c.before != nil {
				n.must(c.before(n))
			}
			n.start = n.tree()
			disk := n.put(c, n.start, nil)
			calls := c.watchedCalls(n, n.watched(disk, disk))
			instants, crashes := c.instants(n, calls), n.crashes(c)
			for _, at := range instants {
				n.must(crashes.EndBefore(at, n.start))
			}
			t.Logf("%d of %d calls, %d different trees left", len(instants), len(calls), crashes.Different())
		})
	}
}

// TestEachFailure makes each call fail, done or not. The failure is reported, what is left is
// valid, and repeating the deed ends as if nothing had happened. An uninstall leaves the uninstall
// marker only if no new pod uses the plugin, and the kubeconfig as long as a pod does.
func TestEachFailure(t *testing.T) {
	t.Parallel()
	for name, c := range crashes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newCrashNode(t, c)
			if c.before != nil {
				n.must(c.before(n))
			}
			n.start = n.tree()
			for _, at := range c.instants(n, c.watchedCalls(n, filesystemtest.WithoutSyncs(&filesystemtest.Fault{}))) {
				for _, kind := range []filesystemtest.Kind{filesystemtest.Refused, filesystemtest.Lost} {
					n.failAt(c, at, kind)
				}
			}
		})
	}
}

func (n *crashNode) failAt(c crash, at int, kind filesystemtest.Kind) {
	n.t.Helper()
	n.must(n.start.Materialise(n.root))
	n.captures = c.captures
	fault := &filesystemtest.Fault{Kind: kind, At: at}
	err := c.deed(n, filesystemtest.WithoutSyncs(fault))
	n.where = fmt.Sprintf("call %d (%v %s) fails, kind %d", at, fault.Hit().Operation, filepath.Base(fault.Hit().Path), kind)
	left := n.tree()
	n.look(left)
	names := strings.Contains(fmt.Sprint(below(left, "net.d/")), `"istio-cni"`)
	if _, marked := left["bin/istio-cni.uninstalled"]; names && marked && !strings.HasPrefix(n.t.Name(), "TestEachFailure/install") {
		n.t.Errorf("%s: there is the note, and pods are made with the plugin", n.where)
	}
	if _, kubeconfig := left["run/istio-cni/istio-cni-kubeconfig"]; names && !kubeconfig {
		n.t.Errorf("%s: pods are made with the plugin, and the kubeconfig is gone", n.where)
	}
	if err == nil && !strings.Contains(n.log.String(), filesystemtest.ErrInjected.Error()) {
		n.t.Errorf("%s: nobody is told", n.where)
	}
	n.must(c.deed(n, filesystemtest.WithoutSyncs(&filesystemtest.Fault{})))
	if diff := cmp.Diff(normal(n.end), normal(n.tree())); diff != "" {
		n.t.Errorf("%s, then done again (-want +got):\n%s", n.where, diff)
	}
}

// crashes returns those of a deed.
func (n *crashNode) crashes(c crash) *filesystemtest.Crashes {
	return &filesystemtest.Crashes{
		Root: n.root, Same: normal,
		Volatile: func(name string) bool { return strings.HasPrefix(name, "run/") },
		Deed: func(where string, o filesystem.Observer, on *filesystemtest.Disk) {
			n.where, n.captures = where, c.captures
			_ = c.deed(n, n.watched(o, on))
		},
		GoOn: func(where string, left tree, on *filesystemtest.Disk) {
			n.where = where
			n.goOn(c, left, on)
		},
	}
}

// goOn continues after a crash, once with the deed and once with an uninstall.
func (n *crashNode) goOn(c crash, left tree, on *filesystemtest.Disk) {
	n.t.Helper()
	disk := n.put(c, left, on)
	n.look(left)
	n.must(c.deed(n, n.watched(disk, disk)))
	if diff := cmp.Diff(normal(n.end), normal(n.tree())); diff != "" {
		n.t.Errorf("%s, then done again (-want +got):\n%s", n.where, diff)
	}
	disk = n.put(c, left, on)
	n.captures = false
	n.must(n.uninstall(n.watched(disk, disk)))
	if diff := cmp.Diff(n.original, below(n.tree(), "net.d/")); diff != "" {
		n.t.Errorf("%s, then uninstalled: the configuration directory (-want +got):\n%s", n.where, diff)
	}
}

// put writes a tree to the node, on a disk like the one given, or else with all of it durable.
func (n *crashNode) put(c crash, t tree, on *filesystemtest.Disk) *filesystemtest.Disk {
	n.t.Helper()
	disk, err := t.Put(n.root, on)
	n.must(err)
	n.captures = c.captures
	return disk
}

// crashNode is a node with all files below one directory, which can be removed and restored as a
// tree.
type crashNode struct {
	t          *testing.T
	root       string
	settings   settings.Settings
	captures   bool
	original   tree   // the configuration directory without our changes
	start, end tree   // of the deed
	where      string // the crash, for messages
	restarts   int
	log        strings.Builder // of the last process
}

func newCrashNode(t *testing.T, c crash) *crashNode {
	t.Helper()
	root := t.TempDir()
	in := func(name string) string { return filepath.Join(root, name) }
	n := &crashNode{t: t, root: root, original: tree{}, where: "undisturbed", settings: settings.Settings{
		SourceDir: in("source"), BinDir: in("bin"), NetDir: in("net.d"), RunDir: in("run/istio-cni"), CacheDir: in("cache"),
		ServiceAccountDir: in("account"), APIHost: "10.96.0.1", APIPort: "443", SkipTLSVerify: true, KubeconfigMode: 0o600, UpdateBinaries: true, AskedMode: c.mode,
	}}
	for _, directory := range []string{"source", "bin", "net.d", "run", "cache", "account"} {
		n.must(os.Mkdir(in(directory), 0o755))
	}
	n.must(os.WriteFile(in("account/token"), []byte("token-1"), 0o600))
	for name, content := range c.networks {
		n.must(n.replace(name, content))
	}
	return n
}

func (n *crashNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s: %v", n.where, err)
	}
}

// replace writes as another agent does, which an uninstall does not undo.
func (n *crashNode) replace(name, content string) error {
	n.original[name] = filesystemtest.File{Mode: 0o644, Content: content}
	_, err := filesystem.Directory{Path: n.settings.NetDir}.Write(name, []byte(content), filesystem.Options{Mode: 0o644})
	return err
}

// installer returns that of a new process, an hour after the last one.
func (n *crashNode) installer(version string) *installer.Installer {
	n.t.Helper()
	n.restarts++
	n.log.Reset()
	now := func() time.Time { return time.Now().Add(time.Duration(n.restarts) * time.Hour) }
	node, err := environment{version: version, now: now}.installer(slog.New(slog.NewTextHandler(&n.log, nil)), n.settings)
	n.must(err)
	return node
}

// keep runs a daemon until there is nothing to do.
func (n *crashNode) keep(version string, o filesystem.Observer) error {
	if err := os.WriteFile(filepath.Join(n.settings.SourceDir, "istio-cni"), []byte("plugin "+version), 0o755); err != nil { //nolint:gosec // the file is a program
		return err
	}
	n.settings.ExcludeNamespaces = []string{version} // the entry differs too
	node := n.installer(version)
	ctx := filesystem.WithObserver(n.t.Context(), o)
	release, err := node.Attend(ctx)
	if err != nil {
		return err
	}
	defer release()
	parts := node.Parts()
	for changed := true; changed; {
		changed = false
		for _, part := range parts {
			outcome, err := part.Ensure(ctx)
			if err != nil {
				return err
			}
			changed = changed || outcome != installer.Right
		}
	}
	return nil
}

func (n *crashNode) uninstall(o filesystem.Observer) error {
	return n.installer("v1").Uninstall(filesystem.WithObserver(n.t.Context(), o), installer.UninstallOptions{})
}

func (n *crashNode) tree() tree {
	n.t.Helper()
	found, err := filesystemtest.Read(n.root)
	n.must(err)
	return found
}

// watched looks at the node after each call that readers can notice, and at what each power cut
// would leave of it.
func (n *crashNode) watched(next filesystem.Observer, disk *filesystemtest.Disk) filesystem.Observer {
	return filesystemtest.WithoutSyncs(filesystemtest.Func(func(call filesystem.Call, do func() error) error {
		err := next.Observe(call, do)
		if err != nil || filesystem.IsTemporary(call.Path) && call.To == "" {
			return err
		}
		if err := loadPrimary(n.settings.NetDir); err != nil {
			n.t.Errorf("%s: a reader finds: %v", n.where, err)
		}
		n.look(disk.Tree())
		for _, cut := range disk.PowerCuts() {
			n.look(cut)
		}
		return nil
	}))
}

// look checks what a container runtime sees: there is a valid primary configuration, and the
// plugins that it names exist. Nothing that an uninstall must restore is lost.
func (n *crashNode) look(t tree) {
	n.t.Helper()
	networks, names := below(t, "net.d/"), false
	if err := loadPrimaryOf(networks); err != nil {
		n.t.Errorf("%s: a reader finds: %v", n.where, err)
	}
	for name, file := range networks {
		names = names || (!filesystem.IsTemporary(name) && strings.Contains(file.Content, `"istio-cni"`))
	}
	plugin := t["bin/istio-cni"].Content
	if n.captures && !names {
		n.t.Errorf("%s: no configuration names the plugin", n.where)
	}
	if names && !strings.HasPrefix(plugin, "plugin v") {
		n.t.Errorf("%s: a configuration names the plugin, which is %q", n.where, plugin)
	}
	for name, file := range n.original {
		claimed := strings.Contains(t["bin/istio-cni.claim"].Content, base64.StdEncoding.EncodeToString([]byte(file.Content)))
		if _, there := networks[name]; !there && !claimed {
			n.t.Errorf("%s: %s is gone, and not in the claim", n.where, name)
		}
	}
}

// below returns the files in a directory, without its name.
func below(t tree, prefix string) tree {
	part := tree{}
	for name, file := range t {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			part[rest] = file
		}
	}
	return part
}

// normal leaves out what differs from process to process: sessions, times, random names.
func normal(t tree) tree {
	same := tree{}
	for name, file := range t {
		switch {
		case strings.HasPrefix(name, "run/"): // a reboot empties it
			continue
		case name == "bin/istio-cni.claim":
			file.Content = regexp.MustCompile(`(?s)"(since|id)": "[^"]*"|"number": \d+`).ReplaceAllString(file.Content, "")
		case name == "bin/istio-cni.uninstalled":
			file.Content = "" // it has a time
		case filesystem.IsTemporary(name):
			name = name[:len(name)-16]
			file.Content = ""
		}
		same[name] = file
	}
	return same
}
