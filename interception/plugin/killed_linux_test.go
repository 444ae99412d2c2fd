// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/spool"
)

var rounds = flag.Int("rounds", 1, "how many rounds TestKilledADD has, of thirty ADDs that are killed")

// aftermath is all that an ADD leaves on a node.
type aftermath struct {
	state  interception.State
	record journal.Record
	files  []string // in the run directory, without temporary ones
	result podsource.Result
}

// leftBy reads it, and puts aside what two ADDs of one pod differ in.
func (n *node) leftBy(t *testing.T) aftermath {
	t.Helper()
	a := aftermath{state: n.observe(n.netns.Path())}
	var err error
	if a.record, err = n.journal().Read(web); err != nil {
		t.Fatal(err)
	}
	if a.record.Netns != n.netns.Path() || a.record.NetnsID.Inode == 0 || a.record.Time.IsZero() {
		t.Errorf("got record %+v", a.record)
	}
	for _, drift := range interception.Diff(a.record.Plan, a.state) {
		t.Errorf("the record and the kernel differ: %s", drift)
	}
	a.record.Plan, a.record.Time, a.record.Netns, a.record.NetnsID = nil, time.Time{}, "", interception.NetnsID{}
	a.files, _ = n.filesLeft(t)
	lines := n.lines(t, spool.PluginResults(n.runDir, pluginName))
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &a.result); err != nil {
		t.Fatal(err)
	}
	a.result.Time, a.result.Stages = time.Time{}, nil
	n.lines(t, spool.PluginLog(n.runDir, pluginName))
	return a
}

// filesLeft are all in the run directory, with their modes, and those that are temporary.
func (n *node) filesLeft(t *testing.T) (files, temporary []string) {
	t.Helper()
	if err := filepath.WalkDir(n.runDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == n.runDir {
			return err
		}
		if filesystem.IsTemporary(entry.Name()) {
			temporary = append(temporary, path)
			return nil
		}
		info, err := entry.Info()
		if err == nil {
			files = append(files, strings.TrimPrefix(path, n.runDir)+" "+info.Mode().String())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files, temporary
}

// lines are those that wait for an agent, each whole.
func (n *node) lines(t *testing.T, kept spool.Spool) []string {
	t.Helper()
	text, err := os.ReadFile(kept.Path)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range all {
		if !json.Valid([]byte(line)) {
			t.Errorf("%s has the line %q", kept.Path, line)
		}
	}
	return all
}

// TestKilledADD kills ADDs at random system calls, every other one in the last quarter. After each
// kill the pod has all rules or none, and after another ADD the node is as after a single one that
// was not killed.
func TestKilledADD(t *testing.T) {
	t.Parallel()
	clean, traced := newNode(t, pod(t)), newNode(t, pod(t))
	clean.exec("ADD", clean.add()).mustSucceed(t)
	want := clean.leftBy(t)
	l := traced.trace(traced.add(), 0)
	l.mustSucceed(t)
	for round := range *rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			random, stood, stops := rand.New(rand.NewPCG(1, uint64(round))), 0, l.stops
			for kills, tries := 0, 0; kills < 30; tries++ {
				if tries == 300 {
					t.Fatalf("of %d ADDs, %d were killed before their end", tries, kills)
				}
				n := newNode(t, pod(t))
				end := 1 + random.IntN(stops)
				if kills%2 == 1 { // most of an ADD is its beginning
					end = stops - end/4
				}
				if run := n.trace(n.add(), end); !run.killed { // it had less to do this time
					stops = (stops + run.stops + 1) / 2 // on a busy machine the first ADD may have had much more
					continue
				}
				kills++
				captured := n.tables() != nil
				n.mustHold(captured)
				if captured {
					stood++
				}
				n.mustHeal(t, want, fmt.Sprintf("killed at stop %d of about %d", end, stops))
			}
			t.Logf("of 30 kills among %d stops, %d came when the rules stood", stops, stood)
		})
	}
}

// mustHeal wants another ADD to leave the node as one alone does.
func (n *node) mustHeal(t *testing.T, want aftermath, where string) {
	t.Helper()
	n.exec("ADD", n.add()).mustSucceed(t)
	got := n.leftBy(t)
	n.mustHold(true)
	if c, err := proof.Equivalent(want.state, got.state, proof.Options{}); err != nil || c.Answer != proof.Yes {
		t.Errorf("%s: the rules do something else: %v, %v", where, c, err)
	}
	if diff := cmp.Diff(want.files, got.files); diff != "" {
		t.Errorf("%s: files (-want +got):\n%s", where, diff)
	}
	if !reflect.DeepEqual(got.record, want.record) {
		t.Errorf("%s: got record %+v, want %+v", where, got.record, want.record)
	}
	if diff := cmp.Diff(want.result, got.result); diff != "" {
		t.Errorf("%s: result (-want +got):\n%s", where, diff)
	}
	_, temporary := n.filesLeft(t)
	for _, path := range temporary {
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if n.exec("DEL", n.add()).mustBeSilent(t); temporary != nil {
		if _, temporary = n.filesLeft(t); temporary != nil {
			t.Errorf("%s: DEL leaves %v", where, temporary)
		}
	}
	if all := n.attachments(); slices.Contains(all, web) {
		t.Errorf("%s: DEL leaves the record", where)
	}
}
