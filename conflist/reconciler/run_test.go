// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

const patience = time.Minute

type daemon struct {
	*node
	events chan reconciler.Event
	stop   func()
}

// start calls Run until stop is called, at the latest at the test's end.
func (n *node) start() *daemon {
	n.t.Helper()
	d := &daemon{node: n, events: make(chan reconciler.Event, 1000)}
	options := n.options
	options.Now = n.clock
	options.OnEvent = func(e reconciler.Event) { d.events <- e }
	r, err := reconciler.New(options)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.context)
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	d.stop = func() { cancel(); <-done }
	n.t.Cleanup(d.stop)
	return d
}

func await[E reconciler.Event](d *daemon) E {
	d.t.Helper()
	deadline := time.After(patience)
	var passed []reconciler.Event
	for {
		select {
		case e := <-d.events:
			if wanted, ok := e.(E); ok {
				return wanted
			}
			passed = append(passed, e)
		case <-deadline:
			var zero E
			d.t.Fatalf("no %T within %v, but %+v", zero, patience, passed)
		}
	}
}

func TestRunRestoresWhatIsOverwritten(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	d := n.start()
	if w := await[reconciler.Waiting](d); !errors.Is(w.Err, reconciler.ErrWaiting) {
		t.Errorf("waiting for %v", w.Err)
	}
	n.write("10-calico.conflist", calicoList, 0o640)
	if e := await[reconciler.Installed](d); e.Plan.Change.Cause != reconciler.Fresh || e.Plan.File != "10-calico.conflist" {
		t.Errorf("installed: %v", e.Plan)
	}
	await[reconciler.Settled](d)
	installed := dump(t, n.directory)
	for i := range 8 { // a burst
		n.write("10-calico.conflist", calicoList, 0o640)
		e := await[reconciler.Restored](d)
		if e.Count != i+1 || e.By.Name != "calico" || e.File != "10-calico.conflist" || e.Plan.Change.Cause != reconciler.Overwritten {
			t.Errorf("restored: %+v", e)
		}
		await[reconciler.Settled](d)
		n.want("after a restore", installed)
	}
	d.stop()
	n.want("after the end", installed)
}

// TestRunFights rewrites the list again and again. The fifth restore reports the fight, once.
func TestRunFights(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.write("10-calico.conflist", calicoList, 0o640)
	now := time.Now()
	n.clock = func() time.Time { return now } // stopped, so that no token comes
	d := n.start()
	await[reconciler.Settled](d)
	var fights []reconciler.Fighting
	for i := range 9 { // the installation was the first write
		n.write("10-calico.conflist", calicoList, 0o640)
		if e := await[reconciler.Restored](d); e.Count != i+1 {
			t.Errorf("restored: %+v", e)
		}
		if i == 4 {
			fights = append(fights, await[reconciler.Fighting](d))
		}
		if i < 8 {
			await[reconciler.Settled](d)
		}
	}
	d.stop()
	for len(d.events) > 0 {
		if e, ok := (<-d.events).(reconciler.Fighting); ok {
			fights = append(fights, e)
		}
	}
	if len(fights) != 1 || fights[0].Count != 5 || fights[0].Pause != 0 || fights[0].By.Name != "calico" {
		t.Errorf("fights: %+v", fights)
	}
}

// TestRunFightsOverACopy changes the list that is copied faster than it may be copied: nothing is
// restored, but the fight is reported.
func TestRunFightsOverACopy(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Owned)
	n.write("10-calico.conflist", calicoList, 0o640)
	now := time.Now()
	n.clock = func() time.Time { return now } // stopped, so that no token comes
	d := n.start()
	await[reconciler.Settled](d)
	for i := range 9 { // the installation was the first write
		n.write("10-calico.conflist", strings.Replace(calicoList, "9007199254740993", strconv.Itoa(1500+i), 1), 0o640)
		await[reconciler.Installed](d)
	}
	if e := await[reconciler.Fighting](d); e.File != "00-mesh-cni.conflist" || e.By != (reconciler.Culprit{}) || e.Count != 1 || e.Pause == 0 {
		t.Errorf("fighting: %+v", e)
	}
}

// TestRunFollowsThePrimary makes another file the primary configuration, and then the first again.
func TestRunFollowsThePrimary(t *testing.T) {
	t.Parallel()
	for _, mode := range modes()[:3] {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, mode)
			n.write("10-calico.conflist", calicoList, 0o640)
			before := dump(t, n.directory)
			d := n.start()
			place := await[reconciler.Settled](d).Plan.File

			n.write("05-cilium.conf", `{"name":"cilium","type":"cilium-cni"}`, 0o600)
			if mode == reconciler.DropIn { // a single configuration has none
				await[reconciler.Waiting](d)
				n.unlink("05-cilium.conf")
			} else {
				e := await[reconciler.Settled](d)
				if list := n.loaded(); list == nil || chain(list)[0] != "cilium-cni" || calls(list) != 1 {
					t.Errorf("a runtime loads %v", list)
				}
				if (e.Plan.File == place) != (mode == reconciler.Owned) {
					t.Errorf("the plugin is in %s, and was in %s", e.Plan.File, place)
				}
				n.unlink("05-cilium.conf")
				n.unlink("05-cilium.conflist")
			}
			await[reconciler.Settled](d)
			if list := n.loaded(); list == nil || chain(list)[0] != "calico" || calls(list) != 1 {
				t.Errorf("a runtime loads %v", list)
			}
			d.stop()
			n.remove()
			n.want("after the uninstall", before)
		})
	}
}

func TestRunCopiesWhatChanges(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Owned)
	n.write("10-calico.conflist", calicoList, 0o640)
	d := n.start()
	await[reconciler.Settled](d)
	n.write("10-calico.conflist", strings.Replace(calicoList, `"snat": true`, `"snat": false`, 1), 0o640)
	if e := await[reconciler.Installed](d); e.Plan.Change.Cause != reconciler.Propagated {
		t.Errorf("change: %v", e.Plan.Change)
	}
	if got := n.read(filepath.Join(n.directory, "00-mesh-cni.conflist")); !strings.Contains(got, `"snat": false`) {
		t.Errorf("the copy:\n%s", got)
	}
	await[reconciler.Settled](d)
	n.unlink("10-calico.conflist") // its agent is about to rewrite it
	await[reconciler.Waiting](d)
	if list := n.loaded(); list == nil || calls(list) != 1 {
		t.Errorf("a runtime loads %v", list)
	}
	n.write("10-calico.conflist", calicoList, 0o640)
	await[reconciler.Settled](d)
	n.rename("00-mesh-cni.conflist", "00-mesh-cni.conflist.cilium_bak")
	if e := await[reconciler.Restored](d); e.By.Name != "cilium" || e.Plan.Change.Cause != reconciler.RenamedAway {
		t.Errorf("restored: %+v", e)
	}
}

func TestRunWaitsForAFileThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.write("20-other.conflist", calicoList, 0o640)
	n.write("10-calico.conflist", calicoList[:100], 0o640)
	d := n.start()
	if e := await[reconciler.Waiting](d); !strings.Contains(e.Err.Error(), "whoever is writing 10-calico.conflist") {
		t.Errorf("waiting: %v", e.Err)
	}
	n.write("10-calico.conflist", calicoList, 0o640)
	if e := await[reconciler.Settled](d); e.Plan.File != "10-calico.conflist" {
		t.Errorf("settled in %s", e.Plan.File)
	}
	d.stop()
	n.write("10-calico.conflist", calicoList[:100], 0o640)
	d = n.start() // it stays unfinished
	await[reconciler.Waiting](d)
	if e := await[reconciler.Settled](d); e.Plan.File != "20-other.conflist" {
		t.Errorf("settled in %s", e.Plan.File)
	}
}

func TestRunWaitsUntilReady(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.write("10-calico.conflist", calicoList, 0o640)
	needed := t.TempDir()
	n.options.Also = []string{needed}
	n.options.Ready = func(context.Context) error {
		if _, err := os.Stat(filepath.Join(needed, "binary")); err != nil {
			return errors.Join(reconciler.ErrWaiting, err)
		}
		return nil
	}
	d := n.start()
	await[reconciler.Waiting](d)
	if got := n.read(filepath.Join(n.directory, "10-calico.conflist")); got != calicoList {
		t.Errorf("the configuration was changed:\n%s", got)
	}
	if err := os.WriteFile(filepath.Join(needed, "binary"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await[reconciler.Settled](d)
}

// TestRunDoesNotWaitOutAFailure removes the cause of a failure while the clock is stopped.
func TestRunDoesNotWaitOutAFailure(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	now := time.Now()
	n.clock = func() time.Time { return now }
	n.write("10-calico.conflist", calicoList, 0o640)
	var mended atomic.Bool
	n.options.Ready = func(context.Context) error {
		if !mended.Load() {
			return errors.New("out of order")
		}
		return nil
	}
	d := n.start()
	await[reconciler.Failed](d)
	mended.Store(true)
	n.write("10-calico.conflist", calicoList, 0o640)
	await[reconciler.Settled](d)
}

// TestRunWithoutTheDirectory has the directory appear late, and vanish.
func TestRunWithoutTheDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.unlink("")
	d := n.start()
	if e := await[reconciler.Unwatched](d); e.Err == nil {
		t.Error("watched what isn't there")
	}
	if e := await[reconciler.Failed](d); e.Pause != time.Second {
		t.Errorf("failed: %+v", e)
	}
	if err := os.Mkdir(n.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	n.write("10-calico.conflist", calicoList, 0o640)
	await[reconciler.Settled](d)
	n.write("10-calico.conflist", calicoList, 0o640)
	await[reconciler.Restored](d)
}
