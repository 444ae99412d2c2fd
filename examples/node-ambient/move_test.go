// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/podnetns"
)

var errNoRoom = errors.New("no room")

// moves is a move with agents that do what they are told at once.
type moves struct {
	t *testing.T
	*move

	captured, former map[string]bool // by the agents
	draining         map[string]bool // by the former agent
	refused          map[string]bool // by the new agent
	lack             error           // of all that both agents have done
}

func newMoves(t *testing.T, mode string, pods int, both ...string) *moves {
	t.Helper()
	of := &former{mode: mode, both: both}
	m := &moves{t: t, captured: map[string]bool{}, former: map[string]bool{}, draining: map[string]bool{}, refused: map[string]bool{}}
	for i := range pods {
		uid := fmt.Sprintf("pod-%d", i)
		of.pods = append(of.pods, uid)
		m.former[uid] = true
	}
	m.move = newMove(of, newFork(make(changes)), slog.New(slog.DiscardHandler))
	return m
}

// lookAsFormer has the former agent look at a pod.
func (m *moves) lookAsFormer(uid string) {
	m.t.Helper()
	if m.former[uid] {
		m.inNew(uid)
		m.seeFormer(agent.Pod{UID: uid, Wanted: ambient.Wanted{Enrolled: true}, Err: m.lack})
	}
}

// look has the new agent look at a pod. No more than one pod is captured by both, but for those
// that drain.
func (m *moves) look(uid string) {
	m.t.Helper()
	pod := agent.Pod{
		UID: uid, Namespace: "shop", Name: uid, Wanted: ambient.Wanted{Enrolled: true}, Seen: ambient.Seen{Proxy: ambient.ProxyServes}, Err: m.lack,
	}
	switch {
	case !m.captured[uid] && m.waits(uid):
		pod.Step = ambient.StepAwaitTurn
		if m.held(uid) == ambient.StepPrepare {
			pod.Seen.Rules = ambient.DrainingRules
		}
	case m.refused[uid]:
		pod.Step = ambient.StepEnter
		m.see(pod)
		pod.Err = errNoRoom
	default:
		m.captured[uid] = true
		pod.Seen.InSets, pod.Seen.Rules = true, ambient.PlannedRules
	}
	m.see(pod)
	between := 0
	for other := range m.captured {
		if m.former[other] && !m.draining[other] {
			between++
		}
	}
	if between > 1 {
		m.t.Errorf("%d pods are between both forms", between)
	}
}

// waits reports whether the new agent must not capture a pod yet.
func (m *moves) waits(uid string) bool { return m.held(uid) != "" }

// settle decides and obeys until nothing more is decided. It returns the pods that the former agent
// was asked to withdraw, and whether all is done.
func (m *moves) settle() (withdrawn []string, done bool) {
	m.t.Helper()
	for {
		next, done := m.decide()
		if len(next.withdraw)+len(next.new)+len(next.former) == 0 {
			return withdrawn, done
		}
		withdrawn = append(withdrawn, next.withdraw...)
		for _, uid := range next.former {
			m.lookAsFormer(uid)
		}
		for _, uid := range next.new {
			m.look(uid)
		}
	}
}

func (m *moves) drains(uid string) {
	m.draining[uid] = true
	m.seeFormer(agent.Pod{UID: uid, Step: ambient.StepAwaitDrained, Seen: ambient.Seen{Rules: ambient.DrainingRules}})
}

func (m *moves) leaves(uid string) {
	delete(m.former, uid)
	m.seeFormer(agent.Pod{UID: uid})
}

// TestMoveIsOneAtATime moves pods in any order of events, in both directions: a pod is not captured
// in the new form before the one before has left the former, or drains.
func TestMoveIsOneAtATime(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{ambientconf.ModeInPod, ambientconf.ModeNode} {
		m := newMoves(t, mode, 5)
		order := slices.Collect(func(yield func(string) bool) {
			for uid := range m.former {
				if !yield(uid) {
					return
				}
			}
		})
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, uid := range order {
			m.look(uid)
		}
		moved := 0
		for {
			withdrawn, done := m.settle()
			if done {
				break
			}
			if len(withdrawn) != 1 {
				t.Fatalf("from %s: the former agent has to withdraw %v, want one", mode, withdrawn)
			}
			if moved++; mode == ambientconf.ModeInPod && moved%2 == 0 {
				m.drains(withdrawn[0])
				if next, _ := m.settle(); len(next) != 1 {
					t.Errorf("while one drains, the former agent has to withdraw %v, want the next", next)
				} else {
					m.leaves(next[0])
					moved++
				}
			}
			m.leaves(withdrawn[0])
		}
		if moved != 5 || len(m.captured) != 5 {
			t.Errorf("from %s: %d pods have moved, %d are captured, want 5", mode, moved, len(m.captured))
		}
	}
}

// TestMoveGoesPastARefusedPod has a pod that the new form cannot capture: it stays in the former
// form, and the others move.
func TestMoveGoesPastARefusedPod(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{ambientconf.ModeInPod, ambientconf.ModeNode} {
		m := newMoves(t, mode, 3)
		m.refused["pod-0"] = true
		for range 3 { // its agent tries again and again
			for _, uid := range []string{"pod-0", "pod-1", "pod-2"} {
				m.look(uid)
				withdrawn, _ := m.settle()
				for _, uid := range withdrawn {
					m.leaves(uid)
				}
			}
		}
		if _, done := m.settle(); done || len(m.former) != 1 || !m.former["pod-0"] || m.captured["pod-0"] {
			t.Errorf("from %s: the former form has %v, the new one %v, done %t", mode, m.former, m.captured, done)
		}
		delete(m.refused, "pod-0")
		m.look("pod-0")
		withdrawn, _ := m.settle()
		if !slices.Equal(withdrawn, []string{"pod-0"}) {
			t.Errorf("from %s: the former agent has to withdraw %v, want pod-0", mode, withdrawn)
		}
	}
}

// TestMoveWithoutAFamily moves pods with addresses of a family that the node's proxy lacks, which
// is an error about each of them.
func TestMoveWithoutAFamily(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{ambientconf.ModeInPod, ambientconf.ModeNode} {
		m := newMoves(t, mode, 2)
		m.lack = fmt.Errorf("%w: an address", nodemode.ErrFamily)
		for range 2 {
			for uid := range m.former {
				m.look(uid)
			}
			withdrawn, _ := m.settle()
			if len(withdrawn) != 1 {
				t.Fatalf("from %s: the former agent has to withdraw %v, want one", mode, withdrawn)
			}
			m.leaves(withdrawn[0])
		}
		if _, done := m.settle(); !done {
			t.Errorf("from %s: not done", mode)
		}
	}
}

// TestMoveWithoutTheNewProxy has the new form's proxy go away while pods wait for their turn. None
// gets it: a pod with the turn may be captured although no proxy serves it.
func TestMoveWithoutTheNewProxy(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 3)
	all := []string{"pod-0", "pod-1", "pod-2"}
	for _, uid := range all {
		m.look(uid)
	}
	for _, uid := range all {
		m.see(agent.Pod{UID: uid, Wanted: ambient.Wanted{Enrolled: true}, Step: ambient.StepAwaitProxy})
	}
	next, _ := m.decide()
	for _, uid := range all {
		if !m.waits(uid) {
			t.Errorf("%s may be captured without a proxy; next is %+v", uid, next)
		}
	}
	m.look("pod-1") // the proxy is back
	if withdrawn, _ := m.settle(); !slices.Equal(withdrawn, []string{"pod-1"}) {
		t.Errorf("the former agent has to withdraw %v, want pod-1", withdrawn)
	}
}

// TestMoveGoesPastAPodThatCannotLeave has a pod that the former agent cannot withdraw: others move
// on, and operators learn why.
func TestMoveGoesPastAPodThatCannotLeave(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 2)
	m.look("pod-0")
	m.look("pod-1")
	if withdrawn, _ := m.settle(); !slices.Equal(withdrawn, []string{"pod-0"}) {
		t.Fatalf("the former agent has to withdraw %v, want pod-0", withdrawn)
	}
	m.draining["pod-0"] = true // for look: the next one need not wait for it
	m.seeFormer(agent.Pod{UID: "pod-0", Step: ambient.StepOpen})
	m.seeFormer(agent.Pod{UID: "pod-0", Step: ambient.StepOpen, Err: errNoRoom})
	if withdrawn, _ := m.settle(); !slices.Equal(withdrawn, []string{"pod-1"}) {
		t.Errorf("the former agent has to withdraw %v, want pod-1", withdrawn)
	}
	m.from.operators = known{pods: []string{"pod-0", "pod-1", "pod-2"}}
	status := moving{known{pods: []string{"pod-1", "pod-0"}}, m.move}.Status()
	var said []string
	for _, pod := range status.Pods {
		said = append(said, fmt.Sprintf("%s: %v", pod.UID, pod.Err))
	}
	want := []string{"pod-0: the pod cannot leave the former form of capture: no room", "pod-1: <nil>"}
	if !slices.Equal(said, want) { // the former agent has given pod-2 up
		t.Errorf("operators are told %q, want %q", said, want)
	}
	m.leaves("pod-0")
	m.leaves("pod-1")
	if _, done := m.settle(); !done {
		t.Error("not done")
	}
}

// TestPodThatLeftComesBack has a pod that lost its label in the middle of a move, and gets it
// again: the former agent captures no new connection of it, so that it waits for no turn.
func TestPodThatLeftComesBack(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 2)
	m.look("pod-0")
	m.settle()
	m.drains("pod-1")
	if m.waits("pod-1") {
		t.Error("it waits for its turn")
	}
}

// TestNodeKeepsItsTunnels has a pod lose its turn after the node has taken its tunnels: the former
// agent does not wait for the node any more.
func TestNodeKeepsItsTunnels(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 2)
	m.look("pod-0")
	m.decide() // it has the turn
	m.drains("pod-0")
	for _, proxy := range []ambient.Proxy{ambient.ProxyServes, ambient.ProxyTold, ambient.ProxyTold} { // which goes away
		m.inFormer("pod-0")
		m.see(agent.Pod{UID: "pod-0", Wanted: ambient.Wanted{Enrolled: true}, Step: ambient.StepEnter, Seen: ambient.Seen{Proxy: proxy}})
	}
	if m.turn != "" {
		t.Errorf("%s has the turn, want none", m.turn)
	}
	if !m.left["pod-0"].shared {
		t.Error("that the node has the tunnels is forgotten")
	}
}

// TestTunnelsWhileThePodMoves asks how long the proxy in a pod is kept: until the node captures the
// pod's tunnels, and no longer than that takes at most.
func TestTunnelsWhileThePodMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMoves(t, ambientconf.ModeInPod, 3)
		for _, uid := range []string{"pod-0", "pod-1"} {
			m.look(uid)
			m.settle()
			m.drains(uid)
			if m.heldInFormer(uid) != ambient.StepAwaitDrained {
				t.Errorf("the proxy in %s is given up before the node captures its tunnels", uid)
			}
			if uid == "pod-0" {
				m.inFormer(uid)
				m.look(uid)
			} else {
				time.Sleep(unsharePatience)
			}
			if m.heldInFormer(uid) != "" {
				t.Errorf("the proxy in %s is kept on", uid)
			}
		}
	})
}

// TestTunnelsAfterAStart has a pod that left the form in the pods when the process before was
// killed: the node captures its tunnels, and its own proxy is kept until then.
func TestTunnelsAfterAStart(t *testing.T) {
	t.Parallel()
	of := &former{mode: ambientconf.ModeInPod, pods: []string{"pod-0", "pod-1"}, left: []string{"pod-0"}}
	m := &moves{t: t, move: newMove(of, newFork(make(changes)), slog.New(slog.DiscardHandler))}
	if m.inFormer("pod-0") || !m.inFormer("pod-1") || m.waits("pod-0") {
		t.Error("the node leaves the wrong tunnels alone, or the pod waits for a turn")
	}
	if m.heldInFormer("pod-0") != ambient.StepAwaitDrained {
		t.Error("the proxy is given up before the node captures the tunnels")
	}
	m.see(agent.Pod{UID: "pod-0", Wanted: ambient.Wanted{Enrolled: true}})
	if m.heldInFormer("pod-0") != "" {
		t.Error("the proxy is kept on")
	}
}

// TestTurnAfterTurn has the former agent fail to leave the tunnels of a pod alone: others go on,
// and say why, and the pod is prepared again in its next turn.
func TestTurnAfterTurn(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeNode, 2)
	m.look("pod-0")
	m.decide() // it has the turn
	m.look("pod-0")
	m.inNew("pod-0")
	m.seeFormer(agent.Pod{UID: "pod-0", Wanted: ambient.Wanted{Enrolled: true}, Step: ambient.StepEnter, Err: errNoRoom})
	if m.failure("pod-0") == nil {
		t.Error("nothing says why the pod does not move")
	}
	m.look("pod-1")
	if m.decide(); m.turn != "pod-1" {
		t.Errorf("%q has the turn, want that the next pod has it", m.turn)
	}
	m.look("pod-0")
	m.giveUpTurnLocked("pod-1", m.left["pod-1"])
	if m.decide(); m.turn != "pod-0" || m.left["pod-0"].prepared || m.held("pod-0") != ambient.StepPrepare {
		t.Errorf("%q has the turn, and pod-0 is %+v", m.turn, m.left["pod-0"])
	}
}

// TestWarningOfTunnels has the proxy in a pod forget it: the log warns if the node does not capture
// the pod's tunnels, and the pod is still there.
func TestWarningOfTunnels(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		captured, shared bool
		wanted           ambient.Wanted
		warns            bool
	}{
		"too early": {captured: true, warns: true},
		"in time":   {captured: true, shared: true},
		"left":      {},
		"gone":      {captured: true, wanted: ambient.Wanted{Gone: true}},
		"lost":      {captured: true, wanted: ambient.Wanted{Enrolled: true}},
	} {
		var log strings.Builder
		m := newMoves(t, ambientconf.ModeInPod, 1)
		m.log = slog.New(slog.NewTextHandler(&log, nil))
		p := m.left["pod-0"]
		p.captured, p.shared = test.captured, test.shared
		m.seeFormer(agent.Pod{UID: "pod-0", Wanted: test.wanted, Step: ambient.StepWithdraw, Seen: ambient.Seen{Rules: ambient.DrainingRules}})
		if warns := strings.Contains(log.String(), "pod-0"); warns != test.warns {
			t.Errorf("%s: the log is %q", name, log.String())
		}
	}
}

// TestRecordedPods tells the pods that their own rules capture from those that leave or wait: the
// records say so.
func TestRecordedPods(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	records := journal.Journal{Directory: dir}
	for uid, leaving := range map[string]bool{"captured": false, "waits": true} {
		record := journal.Record{Attachment: journal.Attachment{Network: "ambient", ContainerID: uid, Interface: "pod"}, UID: uid, Leaving: leaving}
		record.Plan = &interception.Plan{Owner: ambientconf.Owner}
		if err := records.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ambient@damaged@pod.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	captured, left, err := surroundings{options: options{journal: dir}}.recordedPods()
	slices.Sort(captured)
	if err != nil || !slices.Equal(captured, []string{"captured", "damaged"}) || !slices.Equal(left, []string{"waits"}) {
		t.Errorf("captured are %q, and not any more or not yet %q, %v", captured, left, err)
	}
}

// written are the statuses that an annotator was asked for.
type written []ambient.Status

func (w *written) Annotate(_ interception.Pod, status ambient.Status) { *w = append(*w, status) }

// TestPendingWhileThePodMoves has a pod without a proxy: that it is "pending" is passed on once the
// new form captures it.
func TestPendingWhileThePodMoves(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 1)
	var got written
	s := statuses{&got, m.move}
	pod := interception.Pod{UID: "pod-0"}
	s.Annotate(pod, ambient.StatusPending)
	m.look("pod-0")
	m.settle()
	s.Annotate(pod, ambient.StatusPending)
	if want := (written{ambient.StatusPending}); !slices.Equal(got, want) {
		t.Errorf("written are %q, want %q", got, want)
	}
}

// TestPendingOfAPodThatComesBack has a pod that lost its label while it was captured in the former
// form, and gets it again while that form lets its old connections drain: nothing captures it.
func TestPendingOfAPodThatComesBack(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 1)
	m.drains("pod-0")
	var got written
	statuses{&got, m.move}.Annotate(interception.Pod{UID: "pod-0"}, ambient.StatusPending)
	if want := (written{ambient.StatusPending}); !slices.Equal(got, want) {
		t.Errorf("written are %q, want %q", got, want)
	}
}

// TestMoveOutOfTurn has pods that do not wait: one with a new sandbox, one that was between both
// forms when the process before was killed, and one that the former form does not have.
func TestMoveOutOfTurn(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeNode, 3, "pod-0")
	m.expect(podnetns.Pod{UID: "pod-1"})()
	for uid, want := range map[string]bool{"pod-0": false, "pod-1": false, "pod-2": true, "other": false} {
		if m.waits(uid) != want {
			t.Errorf("%s is held: %t, want %t", uid, !want, want)
		}
	}
	if !m.inNew("pod-0") || m.inNew("pod-2") || m.inNew("other") {
		t.Error("the tunnels of the wrong pods are let pass")
	}
}

// changes are a feed.
type changes chan ambient.Change

func (c changes) Next(ctx context.Context) (ambient.Change, error) {
	select {
	case change := <-c:
		return change, nil
	case <-ctx.Done():
		return ambient.Change{}, ctx.Err()
	}
}

// TestFork has two agents learn the same, until one of them has ended.
func TestFork(t *testing.T) {
	t.Parallel()
	s := make(changes)
	f := newFork(s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.run(ctx) }()
	for i := range 3 {
		if i == 2 {
			close(f.branches[1].closed)
		}
		s <- ambient.Change{Gone: []string{fmt.Sprint(i)}}
		for j, b := range f.branches {
			if i == 2 && j == 1 {
				continue
			}
			if change, err := b.Next(ctx); err != nil || !slices.Equal(change.Gone, []string{fmt.Sprint(i)}) {
				t.Errorf("branch %d tells %v, %v", j, change, err)
			}
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the fork ends with %v", err)
	}
	if _, err := f.branches[1].Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a closed branch tells more, %v", err)
	}
}

// TestForkReadsNotAhead has an agent that reads nothing: what the feed tells then stays there.
func TestForkReadsNotAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := make(changes)
		f := newFork(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- f.run(ctx) }()
		s <- ambient.Change{}
		if _, err := f.branches[0].Next(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case s <- ambient.Change{}:
			t.Error("the fork reads ahead")
		default:
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the fork ends with %v", err)
		}
	})
}
