// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// testDaemon is a running installer.
type testDaemon struct {
	*testNode
	restored chan reconciler.Change
	stop     func()
}

// run calls Run until stop is called, at the latest at the test's end.
func (n *testNode) run() *testDaemon {
	n.t.Helper()
	d := &testDaemon{testNode: n, restored: make(chan reconciler.Change, 100)}
	n.options.OnRestore = func(c reconciler.Change) { d.restored <- c }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	i := n.installer()
	go func() { ended <- i.Run(ctx); close(ended) }()
	d.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
	}
	n.t.Cleanup(d.stop)
	return d
}

const patience = time.Minute

// untilIn waits until the file of a name has the plugin.
func (d *testDaemon) untilIn(name string) {
	d.t.Helper()
	deadline := time.After(patience)
	for again := time.Tick(time.Millisecond); !strings.Contains(d.readIfThere(name), testPlugin); {
		select {
		case <-again:
		case <-deadline:
			d.t.Fatalf("%s lacks the plugin:\n%s", name, d.readIfThere(name))
		}
	}
}

func (d *testDaemon) readIfThere(name string) string {
	data, _ := os.ReadFile(d.in(name))
	return string(data)
}

func (d *testDaemon) wantRestored(file string, cause reconciler.Cause) {
	d.t.Helper()
	select {
	case c := <-d.restored:
		if c.File != file || c.Cause != cause {
			d.t.Errorf("restored: %v, want %s %s", c, cause, file)
		}
	case <-time.After(patience):
		d.t.Fatalf("%s is not restored", file)
	}
}

// TestRunRestores restores the entry in a burst, and again after the directory was exchanged.
func TestRunRestores(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	d := n.run()
	d.untilIn("net.d/10-net.conflist")
	for range 8 {
		d.write("net.d/10-net.conflist", testNetwork)
		d.untilIn("net.d/10-net.conflist")
		d.wantRestored("10-net.conflist", reconciler.Overwritten)
	}
	if err := os.Rename(n.in("net.d"), n.in("away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(n.in("net.d"), 0o750); err != nil {
		t.Fatal(err)
	}
	d.write("net.d/20-net.conflist", testNetwork)
	d.untilIn("net.d/20-net.conflist")
	d.stop()
	n.uninstall()
	if got := n.read("net.d/20-net.conflist"); got != testNetwork {
		t.Errorf("after the uninstall:\n%s", got)
	}
}

// TestRunSeesWhatALinkLeadsTo has the target in a directory of its own, through a link that no
// runtime loads.
func TestRunSeesWhatALinkLeadsTo(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	n.options.Want.Mode = reconciler.Splice
	lead := func(name, target string) {
		t.Helper()
		if err := os.Symlink(target, n.in(name+".new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(n.in(name+".new"), n.in(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(n.in("net.d/"+version), 0o750); err != nil {
			t.Fatal(err)
		}
		n.write("net.d/"+version+"/net", testNetwork)
	}
	lead("net.d/current", "v1")
	lead("net.d/10-net.conflist", "current/net")
	d := n.run()
	d.untilIn("net.d/v1/net")
	d.write("net.d/v1/net", testNetwork)
	d.untilIn("net.d/v1/net")
	d.wantRestored("v1/net", reconciler.Overwritten)
	lead("net.d/current", "v2")
	d.untilIn("net.d/v2/net")
	if err := os.Remove(n.in("net.d/v2/net")); err != nil {
		t.Fatal(err)
	}
	d.write("net.d/v2/net", testNetwork)
	d.untilIn("net.d/v2/net")
	lead("net.d/current", "v1")
	d.untilIn("net.d/v1/net")
	d.stop()
	n.uninstall()
	for _, name := range []string{"net.d/v1/net", "net.d/v2/net"} {
		if got := n.read(name); got != testNetwork {
			t.Errorf("%s after the uninstall:\n%s", name, got)
		}
	}
}
