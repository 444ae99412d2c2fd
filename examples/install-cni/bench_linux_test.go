// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/footprint"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// The size of the simulated cluster, and how long it is observed.
const (
	clusterPods = 10_000
	budgetPods  = 100
	idleFor     = 10 * time.Second
)

// The memory budget of both idle processes together, in MiB of resident and of anonymous memory: of
// the daemon alone, and with the watch of 100 pods.
const (
	mostResidentAlone  = 12.0
	mostAnonymousAlone = 6.0
	mostResident       = 32.0
	mostAnonymous      = 15.0
)

// BenchmarkDaemon runs the released binaries: alone, with the watch of 100 pods, and with 500 out
// of 10,000. It reports how long it takes until a pod is known, and for both idle processes MiB of
// anonymous and of resident memory, and context switches per second. It fails if the memory is
// above the budget.
func BenchmarkDaemon(b *testing.B) {
	programs := buildReleased(b)
	for _, pods := range []int{0, budgetPods, 500} {
		b.Run(fmt.Sprintf("pods-%d", pods), func(b *testing.B) {
			for b.Loop() {
				benchmarkDaemon(b, programs, pods)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// buildReleased builds the programs as they are shipped, and returns their directory.
func buildReleased(b *testing.B) (directory string) {
	b.Helper()
	directory = b.TempDir()
	for _, source := range []string{".", "../node-watcher"} {
		command := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", directory+"/", source)
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := command.CombinedOutput(); err != nil {
			b.Fatalf("build: %v\n%s", err, output)
		}
	}
	return directory
}

// releasedNode is a node on which the released daemon runs, and the node-watcher if it has pods.
type releasedNode struct {
	*testNode
	cluster   *fakecluster.Cluster // nil without pods
	processes map[string]int       // by their names
}

// startReleased starts the programs in a directory on a node with that many pods, and waits until
// plugins can ask for a pod.
func startReleased(b *testing.B, programs string, pods int) releasedNode {
	b.Helper()
	n := releasedNode{testNode: newNode(b)}
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	if pods > 0 {
		n.cluster = serveCluster(b, n.testNode, pods)
	} else {
		n.withAPIServer() // for its DaemonSet
	}
	started := time.Now()
	daemon, log := n.startProgram(filepath.Join(programs, "install-cni"))
	n.processes = map[string]int{"daemon": daemon.Process.Pid}
	if pods > 0 {
		ref := podsource.Ref{Namespace: "shop", Name: "web-0", UID: "uid-0"}
		if _, err := (podsource.Agent{RunDir: n.runDir}).Pod(b.Context(), ref); err != nil {
			b.Fatalf("%v\n%s", err, log)
		}
		b.ReportMetric(float64(time.Since(started).Milliseconds()), "ms-to-first-answer")
		n.processes["watcher"] = childOf(b, daemon.Process.Pid)
	}
	return n
}

// resident returns the memory of the processes together, in MiB.
func (n releasedNode) resident(b *testing.B, field string) (sum float64) {
	b.Helper()
	for _, pid := range n.processes {
		sum += float64(kibibytes(b, pid, field)) / 1024
	}
	return sum
}

func benchmarkDaemon(b *testing.B, programs string, pods int) {
	b.Helper()
	n := startReleased(b, programs, pods)
	// A benchmark takes real time.
	time.Sleep(footprint.Quiet + 2*time.Second)
	// As every hour: the kubeconfig is written, and the API server is asked.
	n.rotateToken("token-2")
	time.Sleep(footprint.Quiet + 2*time.Second)
	before := map[string]int{}
	for name, pid := range n.processes {
		before[name] = switches(b, pid)
	}
	time.Sleep(idleFor)
	for name, pid := range n.processes {
		b.ReportMetric(float64(switches(b, pid)-before[name])/idleFor.Seconds(), name+"-switches/s")
		b.ReportMetric(float64(kibibytes(b, pid, "RssAnon"))/1024, name+"-anon-MiB")
		b.ReportMetric(float64(kibibytes(b, pid, "VmRSS"))/1024, name+"-rss-MiB")
	}
	switch pods {
	case 0:
		atMost(b, n.resident(b, "VmRSS"), "rss-MiB", mostResidentAlone)
		atMost(b, n.resident(b, "RssAnon"), "anon-MiB", mostAnonymousAlone)
	case budgetPods:
		atMost(b, n.resident(b, "VmRSS"), "rss-MiB", mostResident)
		atMost(b, n.resident(b, "RssAnon"), "anon-MiB", mostAnonymous)
	}
}

// serveCluster serves that many pods on the node, and all others elsewhere.
func serveCluster(b *testing.B, n *testNode, pods int) *fakecluster.Cluster {
	b.Helper()
	cluster := fakecluster.New()
	all := make([]fakecluster.Pod, clusterPods)
	for i := range all {
		all[i] = fakecluster.Pod{Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: fmt.Sprintf("uid-%d", i), Node: "node-2"}
		if i < pods {
			all[i].Node = "node-1"
		}
	}
	cluster.Put(all...)
	server := httptest.NewServer(cluster.Handler())
	b.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	n.prepare(nil, map[string]string{
		"NODE_NAME": "node-1", "KUBERNETES_SERVICE_PROTOCOL": "http", "SKIP_TLS_VERIFY": "true",
		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
	})
	return cluster
}

func childOf(b *testing.B, pid int) int {
	b.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if child, failed := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && failed == nil {
			return child
		}
	}
	b.Fatalf("process %d has no child", pid)
	return 0
}

// switches returns the context switches of all threads of a process, proc_pid_status(5).
func switches(b *testing.B, pid int) (sum int) {
	b.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		b.Fatalf("process %d: %v", pid, err)
	}
	for _, task := range tasks {
		sum += field(b, task, "voluntary_ctxt_switches") + field(b, task, "nonvoluntary_ctxt_switches")
	}
	return sum
}

func kibibytes(b *testing.B, pid int, name string) int {
	b.Helper()
	return field(b, fmt.Sprintf("/proc/%d/status", pid), name)
}

func field(b *testing.B, file, name string) int {
	b.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			number, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				b.Fatal(err)
			}
			return number
		}
	}
	b.Fatalf("%s has no %s", file, name)
	return 0
}
