// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/footprint"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
)

// The budget of an idle process whose pods are all in the mesh.
const (
	budgetPods    = 100
	mostAnonymous = 6.0  // MiB
	mostResident  = 16.0 // MiB
	// The process looks for the proxy's listeners every two seconds, at everything once a minute,
	// and answers the daemon every five seconds. Sample is short enough that most samples have none
	// of these rounds, and settled is after the first of the minute's rounds.
	listenerRound = 2 * time.Second
	askRound      = 5 * time.Second
	sample        = 100 * time.Millisecond
	settled       = footprint.Quiet + 70*time.Second
	idleFor       = 20 * time.Second
	// mostAwake is the share of samples in which the process may have run: two of each round's and
	// of each answer's, as one may begin at the end of a sample.
	mostAwake = 2 * (float64(sample)/float64(listenerRound) + float64(sample)/float64(askRound))
)

// mostOnNode is how many times the memory of the form in the pods' namespaces the form on the node
// may take: not more, but for what differs from one run of the same form to the next.
const mostOnNode = 1.05

// BenchmarkIdle runs the released program with 100 pods that a proxy serves, in both forms of
// capture at once. It prints the memory of each process when it has nothing to do, and in what
// share of the time it runs. It fails above the budget, and if the form on the node takes more
// memory than the other.
func BenchmarkIdle(b *testing.B) {
	program := buildReleased(b)
	forms := []struct {
		name string
		pid  int
	}{{"in-pod", startIdle(b, program)}, {"node", startIdleOnNode(b, program)}}
	time.Sleep(settled) // a benchmark takes real time
	memory := map[string]map[string]float64{}
	for _, form := range forms {
		b.Run(form.name, func(b *testing.B) {
			for b.Loop() {
				memory[form.name] = measureIdle(b, form.pid)
			}
			b.ReportMetric(0, "ns/op") // of the whole, and of no use
		})
	}
	for unit, onNode := range memory["node"] {
		if inPod, measured := memory["in-pod"][unit]; measured && onNode > mostOnNode*inPod {
			b.Errorf("NOT MET: the form on the node takes %.2f %s, and the limit is %.2f times the %.2f of the other", onNode, unit, mostOnNode, inPod)
		}
	}
}

// measureIdle watches a process that is idle, and returns its memory by the units of the figures.
func measureIdle(b *testing.B, pid int) (memory map[string]float64) {
	b.Helper()
	awake, first := 0, switches(b, pid)
	for range idleFor / sample {
		from := switches(b, pid)
		time.Sleep(sample)
		if switches(b, pid) != from {
			awake++
		}
	}
	memory = map[string]float64{"anon-MiB": float64(status(b, pid, "RssAnon")) / 1024, "rss-MiB": float64(status(b, pid, "VmRSS")) / 1024}
	b.ReportMetric(float64(switches(b, pid)-first)/idleFor.Seconds(), "switches/s")
	atMost(b, float64(awake)/float64(idleFor/sample), "awake", mostAwake)
	atMost(b, memory["anon-MiB"], "anon-MiB", mostAnonymous)
	atMost(b, memory["rss-MiB"], "rss-MiB", mostResident)
	return memory
}

// atMost reports a figure, and fails the benchmark above the limit.
func atMost(b *testing.B, got float64, unit string, limit float64) {
	b.Helper()
	b.ReportMetric(got, unit)
	if got > limit {
		b.Errorf("NOT MET: %.2f %s, and the budget is %.2f", got, unit, limit)
	}
}

// buildReleased builds the program as it is shipped.
func buildReleased(b *testing.B) (program string) {
	b.Helper()
	program = filepath.Join(b.TempDir(), "node-ambient")
	command := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, output)
	}
	return program
}

// startIdle starts the program on a node with a host, a proxy and the pods, hands over the pods,
// and returns the id of the process.
func startIdle(b *testing.B, program string) (pid int) {
	b.Helper()
	node, dir := fakenode.New(b), b.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	node.Link(node.Namespace("host").Path(), filepath.Join(node.Roots.Proc, "1", "ns", "net"))
	pods := feedIdle(b, path("feed"))
	process := begin(b, program, "-feed="+path("feed"), "-events="+path("events"), "-proxy="+path("proxy"), "-journal="+path("records"),
		"-proc="+node.Roots.Proc, "-netns="+node.Roots.Netns[1])
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{Socket: path("proxy"), Numbers: ambient.IstioNumbers()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = proxy.Close() }) // what it says of the agent's end is nothing
	enrolIdle(b, path("events"), node, pods)
	return process.cmd.Process.Pid
}

// startIdleOnNode is startIdle for the form that captures in the node's namespace.
func startIdleOnNode(b *testing.B, program string) (pid int) {
	b.Helper()
	node, dir := nodes.New(b)[0], b.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	own := node.NewPod(proxyUID, interception.IPv4, interception.IPv6)
	own.StartProxy(b)
	pods := feedIdle(b, path("feed"), ambient.Pod{
		Pod:       interception.Pod{Namespace: "mesh", Name: "ztunnel-x", UID: proxyUID, Labels: map[string]string{"app": "ztunnel"}},
		Addresses: own.Addresses, Phase: "Running", Ready: true, Created: time.Unix(1, 0),
	})
	process := begin(b, program, "-feed="+path("feed"), "-events="+path("events"), "-journal="+path("records"), "-proc="+node.Roots().Proc,
		"-netns="+strings.Join(node.Roots().Netns, ","), `-settings={"mode":"node","proxyNamespace":"mesh"}`)
	enrolIdle(b, path("events"), fakenode.New(b), pods)
	return process.cmd.Process.Pid
}

// feedIdle feeds the pods of the mesh, which it returns, and the others.
func feedIdle(b *testing.B, socket string, others ...ambient.Pod) (pods []ambient.Pod) {
	b.Helper()
	for i := range budgetPods {
		pods = append(pods, idlePod(i))
	}
	s := &source{changes: make(chan ambient.Change, 1), statuses: make(chan ambient.Status, 2*budgetPods)}
	s.changes <- ambient.Change{
		Namespaces: []ambient.Namespace{{Name: "shop"}, {Name: "mesh"}}, Pods: append(others, pods...), Complete: true,
	}
	serveFeed(b, socket, s)
	return pods
}

// enrolIdle hands over the pods as the plugin does, each with a namespace of the node's, and then
// asks as the daemon does.
func enrolIdle(b *testing.B, events string, node *fakenode.Node, pods []ambient.Pod) {
	b.Helper()
	awaitSocket(b, events)
	for i, pod := range pods {
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		ns := node.Namespace(pod.Name, pod.Addresses[0].String()+"/32", pod.Addresses[1].String()+"/128")
		decision, err := event.Enrol(ctx, events, event.Pod{Namespace: "shop", Name: pod.Name, UID: pod.UID, Addresses: pod.Addresses}, ns.File())
		cancel()
		if err != nil || !decision.Capture {
			b.Fatalf("pod %d: %+v, %v", i, decision, err)
		}
	}
	askRegularly(b, events)
}

// askRegularly asks the program what the daemon asks it, to learn that it still answers.
func askRegularly(b *testing.B, events string) {
	b.Helper()
	ticker := time.NewTicker(askRound)
	b.Cleanup(ticker.Stop)
	go func() {
		for {
			select {
			case <-b.Context().Done():
				return
			case <-ticker.C:
			}
			if _, err := event.Pods(b.Context(), events, event.Selection{UID: "none"}); err != nil && b.Context().Err() == nil {
				b.Errorf("the program does not answer: %v", err)
			}
		}
	}()
}

// idlePod is a pod as the API server has it.
func idlePod(i int) ambient.Pod {
	last := byte(i + 1) //nolint:gosec // there are 100
	return ambient.Pod{Pod: interception.Pod{
		Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: fmt.Sprintf("1c6b2f1e-9d3c-4f7a-8a51-%012d", 1000+i),
		Labels: map[string]string{"istio.io/dataplane-mode": "ambient", "app": "web", "pod-template-hash": "5d8f7c9b6"},
	}, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 245, 1, last}), netip.AddrFrom16([16]byte{0: 0xfd, 15: last})}}
}

// switches returns how often the threads of a process have run so far (proc_pid_status(5)).
func switches(b *testing.B, pid int) (sum int) {
	b.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) == 0 {
		b.Fatalf("process %d: %v", pid, err)
	}
	for _, task := range tasks {
		sum += field(b, task+"/status", "voluntary_ctxt_switches")
	}
	return sum
}

func status(b *testing.B, pid int, name string) int {
	b.Helper()
	return field(b, fmt.Sprintf("/proc/%d/status", pid), name)
}

// field returns a number of a file of the kernel's.
func field(b *testing.B, path, name string) int {
	b.Helper()
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), name+":"); found {
			number, err := strconv.Atoi(strings.Fields(text)[0])
			if err != nil {
				b.Fatal(err)
			}
			return number
		}
	}
	b.Fatalf("%s has no %s", path, name)
	return 0
}
