// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

type owners = map[netip.Addr]string

// editing is a pod with a live set of addresses, and an edit that removes a member, has another
// change hands, and adds a third.
type editing struct {
	*pod
	old, edited owners
	edit        interception.SetEdit
}

func newEditing(t testing.TB) *editing {
	t.Helper()
	a, b, c, d := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.4")
	e := &editing{
		pod:    newPod(t),
		old:    owners{a: "one", b: "two", d: "four"},
		edited: owners{a: "three", c: "three", d: "four"},
		edit:   interception.SetEdit{Remove: owners{b: "two", d: "late"}, Add: owners{a: "three", c: "three"}},
	}
	e.apply(t, build(t, "mesh-test", func(b *interception.Builder) {
		b.LiveAddresses("pods", interception.IPv4, "addresses come and go")
	}))
	e.update(t, interception.SetEdit{Add: e.old})
	return e
}

func (e *editing) update(t testing.TB, edit interception.SetEdit) {
	t.Helper()
	if err := dataplane(t).UpdateSet(t.Context(), e.Netns, "mesh-test", "pods", edit); err != nil {
		t.Fatal(err)
	}
}

// restore brings the old members.
func (e *editing) restore(t testing.TB) {
	t.Helper()
	remove := maps.Clone(e.members(t))
	maps.DeleteFunc(remove, func(a netip.Addr, _ string) bool { return e.old[a] != "" })
	e.update(t, interception.SetEdit{Remove: remove, Add: e.old})
}

func (e *editing) members(t testing.TB) owners {
	t.Helper()
	state, err := dataplane(t).Observe(t.Context(), e.Netns, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	return state.Owners["pods"]
}

// check wants all of the edit or nothing of it, has the edit made again, and reports whether it had
// been made.
func (e *editing) check(t testing.TB, where string) bool {
	t.Helper()
	now := e.members(t)
	made := maps.Equal(now, e.edited)
	if !made && !maps.Equal(now, e.old) {
		t.Errorf("%s: got %v, want %v or %v", where, now, e.old, e.edited)
	}
	e.update(t, e.edit)
	if again := e.members(t); !maps.Equal(again, e.edited) {
		t.Errorf("%s: the edit made again brings %v, want %v", where, again, e.edited)
	}
	e.restore(t)
	return made
}

// smooth makes the edit, and returns its calls to the kernel.
func (e *editing) smooth(t testing.TB) []kerneltest.Call {
	t.Helper()
	var smooth kerneltest.Fault
	if err := dataplane(t).Through(smooth.Open).UpdateSet(t.Context(), e.Netns, "mesh-test", "pods", e.edit); err != nil {
		t.Fatal(err)
	}
	if !e.check(t, "without a fault") {
		t.Fatal("the edit was not made")
	}
	return smooth.Calls()
}

// TestUpdateSetKilled kills a process before each of its calls to the kernel.
func TestUpdateSetKilled(t *testing.T) {
	t.Parallel()
	e := newEditing(t)
	file := filepath.Join(t.TempDir(), "edit.json")
	text, err := json.Marshal(e.edit)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	calls := e.smooth(t)
	for end, call := range calls {
		if !newVictim(t, e.pod, editorArgument, file, end).killed(t, -1) {
			t.Errorf("call %d: the process was not killed", end)
		}
		if e.check(t, fmt.Sprintf("killed before call %d (%s)", end, call.What)) {
			t.Errorf("call %d (%s): the edit was made before the process could make it", end, call.What)
		}
	}
	if newVictim(t, e.pod, editorArgument, file, len(calls)).killed(t, -1) || !e.check(t, "at the end") {
		t.Error("the process did not make the edit")
	}
}

// TestUpdateSetFailures has each call to the kernel fail, and each message of the transaction. When
// only an answer is lost, the edit finds out what happened.
func TestUpdateSetFailures(t *testing.T) {
	t.Parallel()
	e := newEditing(t)
	for _, f := range kerneltest.Faults(e.smooth(t)) {
		err := dataplane(t).Through(f.Open).UpdateSet(t.Context(), e.Netns, "mesh-test", "pods", e.edit)
		if lost := f.Kind == kerneltest.Lost; lost != (err == nil) {
			t.Errorf("%s: %v", f, err)
		}
		if made := e.check(t, f.String()); made != (err == nil) {
			t.Errorf("%s: %v, and the edit made: %v", f, err, made)
		}
	}
}

// TestUpdateSetWithoutOwner removes a member that another program has added, and no member with an
// owner.
func TestUpdateSetWithoutOwner(t *testing.T) {
	t.Parallel()
	e := newEditing(t)
	e.nft(t, "", "add", "element", "inet", "mesh-test", "set-pods", "{ 10.0.0.9 }")
	stray := netip.MustParseAddr("10.0.0.9")
	if owner, there := e.members(t)[stray]; !there || owner != "" {
		t.Fatalf("the members are %v, want 10.0.0.9 without an owner among them", e.members(t))
	}
	remove := owners{stray: "", netip.MustParseAddr("10.0.0.8"): ""}
	for address := range e.old {
		remove[address] = ""
	}
	e.update(t, interception.SetEdit{Remove: remove})
	if got := e.members(t); !maps.Equal(got, e.old) {
		t.Errorf("the members are %v, want %v", got, e.old)
	}
}

// TestUpdateSetOvertaken has another transaction first: once, and then always, until the context
// ends. An outcome that is unknown then is in the error.
func TestUpdateSetOvertaken(t *testing.T) {
	t.Parallel()
	e := newEditing(t)
	transactions := 0
	dp := beforeTransactions(t, func() {
		if transactions++; transactions == 1 {
			e.update(t, interception.SetEdit{Add: owners{netip.MustParseAddr("10.0.0.2"): "five"}})
		}
	})
	if err := dp.UpdateSet(t.Context(), e.Netns, "mesh-test", "pods", e.edit); err != nil || transactions != 2 {
		t.Errorf("overtaken once: %v after %d transactions", err, transactions)
	}
	want := maps.Clone(e.edited)
	want[netip.MustParseAddr("10.0.0.2")] = "five" // it changed hands meanwhile
	if got := e.members(t); !maps.Equal(got, want) {
		t.Errorf("overtaken once: got %v, want %v", got, want)
	}
	e.restore(t)

	ctx, end := context.WithCancel(t.Context())
	transactions = 0
	dp = beforeTransactions(t, func() {
		e.load(t, "add table inet other\ndelete table inet other")
		if transactions++; transactions == 3 {
			end()
		}
	})
	err := dp.UpdateSet(ctx, e.Netns, "mesh-test", "pods", e.edit)
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "unknown") || transactions != 3 {
		t.Errorf("overtaken for ever: %v after %d transactions", err, transactions)
	}
	if e.check(t, "overtaken for ever") {
		t.Error("overtaken for ever: the edit was made")
	}
}

// TestUpdateSetUnknown ends the context when the answer to the transaction is lost.
func TestUpdateSetUnknown(t *testing.T) {
	t.Parallel()
	e := newEditing(t)
	at := -1
	for i, call := range e.smooth(t) {
		if call.Transaction() {
			at = i
		}
	}
	ctx, end := context.WithCancel(t.Context())
	fault := &kerneltest.Fault{Kind: kerneltest.Lost, At: at}
	dp := dataplane(t).Through(func(in *os.File) kernel.Namespace {
		return kerneltest.Interfere(fault.Open(in), func(c kerneltest.Call, do func() error) error {
			if c.Transaction() {
				end()
			}
			return do()
		})
	})
	err := dp.UpdateSet(ctx, e.Netns, "mesh-test", "pods", e.edit)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "unknown whether the set is changed") {
		t.Errorf("got %v, want context.Canceled and that the outcome is unknown", err)
	}
	if !e.check(t, "with the answer lost") {
		t.Error("the edit was not made")
	}
}
