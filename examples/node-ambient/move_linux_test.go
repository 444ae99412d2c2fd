// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception/choice"
)

const oneHasMoved = "a pod is captured in the new form, and leaves the former"

// TestModeIsChanged changes the form of capture of a node with pods, and kills the program in the
// middle, twice. The program goes on in the new form, or goes back to the former one. Each
// connection of the pods goes through a proxy at any time and none fails, those that were there go
// on, and the node has what one has that was always in that form.
func TestModeIsChanged(t *testing.T) {
	t.Parallel()
	program := build(t)
	const inPod, onNode = ambientconf.ModeInPod, ambientconf.ModeNode
	for name, modes := range map[string][]string{
		"to the node": {inPod, onNode, onNode, onNode}, "to the node and back": {inPod, onNode, inPod, inPod},
		"to the pods": {onNode, inPod, inPod, inPod}, "to the pods and back": {onNode, inPod, onNode, onNode},
	} {
		for _, dataplane := range []string{choice.NFTables, choice.IPTables, legacy} {
			if dataplane != choice.NFTables && modes[3] == modes[0] {
				continue // what differs between dataplanes is in a move, and the way back is one
			}
			t.Run(name+" "+dataplane, func(t *testing.T) {
				t.Parallel()
				newMover(t, program, dataplane).change(modes)
			})
		}
	}
}

// change starts the program with these modes. It ends in the first one as it should, and is killed
// in the second, when the first pod has moved, and in the third at any moment.
func (m *mover) change(modes []string) {
	m.t.Helper()
	bare, always := m.dump(), map[string]string{}
	var process *process
	for _, mode := range []string{modes[1], modes[0]} {
		process = m.begin(mode)
		m.awaitCaptured()
		always[mode] = m.dump()
		if mode == modes[1] {
			m.withdraw()
			process.end()
			m.awaitDump(bare)
		}
	}
	old := m.connect()
	stop := m.load()
	process.end()
	for i, await := range []string{oneHasMoved, "the rules are written by a dataplane"} {
		process = m.begin(modes[1+i])
		process.await(await)
		if i == 1 {
			time.Sleep(rand.N(300 * time.Millisecond)) // to whatever it does then
		}
		process.kill()
		m.speak(old)
	}
	process = m.begin(modes[3])
	m.awaitCaptured()
	m.speak(old)
	m.close(old)
	m.awaitDump(always[modes[3]])
	stop()
	m.withdraw()
	process.end()
	m.awaitDump(bare)
	may := slices.Contains(modes[2:], ambientconf.ModeInPod) // as the proxy comes to a new agent after a while
	if statuses := m.statuses(); !slices.Contains(statuses, ambient.StatusEnabled) || !may && slices.Contains(statuses, ambient.StatusPending) {
		m.t.Errorf("the source is asked for the statuses %q", statuses)
	}
}

// TestMoveLosesNoPacket opens connections between the pods, many at once, while the pods move to
// the node and back: none fails, and no packet that opens one is sent again, which would take a
// second. One of a thousand may be lost otherwise, on a machine that is busy. With iptables more
// would be: it lets no connection begin while it replaces rules.
func TestMoveLosesNoPacket(t *testing.T) {
	t.Parallel()
	m := newMover(t, build(t), choice.NFTables)
	process := m.begin(ambientconf.ModeInPod)
	m.awaitCaptured()
	stop, before := m.rush(), m.sentAgain()
	for range 5 {
		for _, mode := range []string{ambientconf.ModeNode, ambientconf.ModeInPod} {
			process.end()
			process = m.begin(mode)
			process.await("nothing of the former is left")
		}
	}
	opened := stop()
	if again := m.sentAgain() - before; again > opened/1000 {
		t.Errorf("%d packets were sent again, for %d connections", again, opened)
	}
	process.end()
}

// kill kills the process.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait() // it was killed
}

// withdraw takes all pods out of the mesh.
func (m *mover) withdraw() {
	m.t.Helper()
	left, err := event.Withdraw(m.t.Context(), m.dir+"/pluginevent.sock", event.Selection{}, func(event.PodState) {})
	if err != nil || len(left) > 0 {
		m.t.Errorf("left %v, %v", left, err)
	}
}

// TestPodStaysWithoutTheNewProxy changes the form of capture where its proxy is missing: the pods
// stay in the former form, operators learn why, and can take the pods out of the mesh.
func TestPodStaysWithoutTheNewProxy(t *testing.T) {
	t.Parallel()
	m := newMover(t, build(t), choice.NFTables)
	before := m.dump()
	process := m.begin(ambientconf.ModeInPod)
	m.awaitCaptured()
	process.end()
	m.onNode.Stop()
	process = m.begin(ambientconf.ModeNode)
	process.await("the pods of the node move")
	await := func(want string, holds func(event.Node) bool) {
		t.Helper()
		late := time.After(time.Minute)
		for {
			node, err := event.Pods(t.Context(), m.dir+"/pluginevent.sock", event.Selection{})
			if err == nil && holds(node) {
				return
			}
			select {
			case <-late:
				t.Fatalf("not seen: %s; the program says %+v, %v", want, node, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	await("that the pods wait", func(node event.Node) bool {
		waiting := 0
		for _, pod := range node.Pods {
			if pod.Step == string(ambient.StepAwaitProxy) && pod.Rules == "planned" && pod.InSets { // as CHECK demands
				waiting++
			}
		}
		return waiting == len(m.pods) && strings.Contains(node.Host, "does not listen")
	})
	m.load()()
	out := 0
	left, err := event.Withdraw(t.Context(), m.dir+"/pluginevent.sock", event.Selection{UID: podUID(1)}, func(event.PodState) { out++ })
	if err != nil || len(left) > 0 || out != 1 {
		t.Errorf("out %d, left %v, %v", out, left, err)
	}
	if state := m.observe(m.pods[1], ambientconf.Owner); len(state.Objects) > 0 {
		t.Errorf("a pod that was withdrawn has\n%s", state.Plan())
	}
	if state := m.observe(m.pods[2], ambientconf.Owner); len(state.Objects) == 0 {
		t.Error("a pod that was not withdrawn has no rules")
	}
	m.withdraw()
	process.end()
	if after := m.dump(); after != before {
		t.Errorf("there is\n%s\nwant\n%s", after, before)
	}
}

// TestModeCannotBeChanged starts the program in one form where the other one has left something,
// without what the other form's agent needs: it does not serve, and says what to do.
func TestModeCannotBeChanged(t *testing.T) {
	t.Parallel()
	const onNode, inPod = "records.node.json", "records/ambient@1c6b2f1e@pod.json"
	for settings, test := range map[string]struct{ left, want string }{
		`{"noHost":true,"proxyNamespace":"mesh"}`: {onNode, "noHost keeps the agent from the host's rules"},
		`{}`: {onNode, "set proxyNamespace"},
		`{"proxyNamespace":"mesh","mode":"node"}`: {inPod, "without the flag -proxy there is no socket for their proxy"},
	} {
		dir, _ := feedPods(t)
		if err := os.Mkdir(dir+"/records", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, test.left), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		more := []string{"-settings=" + settings}
		if test.left == inPod {
			more = append(more, "-proxy=")
		}
		var log strings.Builder
		code := run(t.Context(), environment{args: arguments(dir, more...), stdout: io.Discard, stderr: &log})
		if text := log.String(); code != exitFailure || !strings.Contains(text, test.want) || !strings.Contains(text, "install-cni ambient withdraw --all") {
			t.Errorf("%s: exit code %d: %s", settings, code, text)
		}
	}
}
