// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

// editTask is the task of a process that makes an edit until it is killed.
type editTask struct {
	// Namespace is a path to the namespace.
	Namespace string
	Edit      interception.SetEdit
}

// beEditor makes an edit on command.
func (o ConformanceOptions) beEditor(t *testing.T, text string) {
	t.Helper()
	var task editTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		t.Fatal(err)
	}
	ns, err := interception.OpenNetns(task.Namespace, interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	editor := o.New(t).(setEditor) //nolint:forcetypeassert,errcheck // a guard is one
	if err := victim.Serve(func() error { return editor.UpdateSet(t.Context(), ns, caseOwner, editedSet, task.Edit) }); err != nil {
		t.Fatal(err)
	}
}

// kills is how many processes are killed during an edit, at instants spread over its duration.
const kills = 6

// killed kills processes (SIGKILL) that edit one member, or many in all ways.
func (e *editing) killed() {
	if e.ns.File() == nil {
		e.Log("without kills: another process cannot reach the namespace")
		return
	}
	empty := e.anew().dump()
	f, old, next := e.family, members{}, members{}
	edit := interception.SetEdit{Add: members{}, Remove: members{}}
	for i := range 300 {
		a := address(f, i+1)
		switch {
		case i < 200:
			old[a] = "one"
		default:
			edit.Add[a] = "two"
		}
		switch {
		case i < 50:
			edit.Remove[a] = "one"
		case i < 100:
			edit.Add[a] = "two"
		}
	}
	maps.Copy(next, old)
	for a := range edit.Remove {
		delete(next, a)
	}
	maps.Copy(next, edit.Add)
	e.killedDuring(edit, old, next)
	one := address(f, 1)
	e.killedDuring(interception.SetEdit{Add: members{one: "two"}}, members{one: "one"}, members{one: "two"})
	e.remove(caseOwner)
	e.same("after Remove, which follows kills during edits", "an empty namespace", empty, "this one", e.dump())
}

// killedDuring kills processes during an edit. Each must leave all old members or all new ones, and
// the next edit works.
func (e *editing) killedDuring(edit interception.SetEdit, old, next members) {
	e.become(old)
	took := e.victim(edit, nil).Took
	e.want = next
	e.check("after an edit by another process")
	died := 0
	for i := range kills {
		e.become(old)
		after := took * time.Duration(i) / kills
		end := e.victim(edit, victim.After(after))
		if end.Killed {
			died++
		}
		got := e.observe(caseOwner).Owners[editedSet]
		if !maps.Equal(got, next) && (!maps.Equal(got, old) || !end.Killed) {
			e.broken("killed %t after %v of %v: there are %d members, %.300v, want the %d old ones or the %d new ones",
				end.Killed, after, took, len(got), got, len(old), len(next))
		}
	}
	e.Logf("%d of %d processes were killed before their end, which is after about %v", died, kills, took)
}

// become makes the set have these members.
func (e *editing) become(want members) {
	edit := interception.SetEdit{Add: want, Remove: members{}}
	for a, owner := range e.observe(caseOwner).Owners[editedSet] {
		if want[a] == "" {
			edit.Remove[a] = owner
		}
	}
	e.do(edit, want)
}

// victim makes another process edit the set, and kills it when the function returns, if there is
// one.
func (e *editing) victim(edit interception.SetEdit, when func()) victim.End {
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), e.ns.File().Fd())
	task, err := json.Marshal(editTask{path, edit})
	if err != nil {
		e.Fatal(err)
	}
	process, err := victim.Start(e.Context(), e.Name(), string(task))
	if err != nil {
		e.Fatal(err)
	}
	end, err := process.Run(victim.Ending{When: when, Group: true})
	if err != nil {
		e.Fatalf("law %q: an edit by another process: %v", string(e.law), err)
	}
	return end
}
