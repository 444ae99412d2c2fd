// SPDX-License-Identifier: Apache-2.0

package plugin

import (
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

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// nodeAgent is install-cni with its node-watcher, as processes.
type nodeAgent struct {
	testing.TB
	processes []int
}

// startAgent starts the released binaries for the node, with an API server that knows the pod, and
// returns once they know it too.
func startAgent(b *testing.B, n *node) *nodeAgent {
	b.Helper()
	return startPrograms(b, n, fakecluster.New(), b.TempDir(), nil)
}

// startPrograms is startAgent with an API server that may know other pods, a directory for the
// programs, and more variables of install-cni's environment.
func startPrograms(b *testing.B, n *node, cluster *fakecluster.Cluster, root string, more []string) *nodeAgent {
	b.Helper()
	for _, program := range []string{"install-cni", "node-watcher", "node-ambient"} {
		command := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", root, "github.com/meshcni/meshcni/examples/"+program)
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if err := finish(command); err != nil {
			b.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(root, "log"))
	if err != nil {
		b.Fatal(err)
	}
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: uid, Node: "node-1", Object: injected(b)})
	daemon := exec.Command(filepath.Join(root, "install-cni"))
	daemon.Env, daemon.Stdout, daemon.Stderr = append(agentEnvironment(b, n, cluster, root), more...), log, log
	if err := daemon.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = daemon.Process.Kill() // its children end with it
		_ = daemon.Wait()
	})
	source := podsource.Agent{RunDir: n.runDir, Backoff: func(int) time.Duration { return 10 * time.Millisecond }}
	ref := podsource.Ref{Namespace: "shop", Name: "web-0", UID: uid}
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := source.Pod(b.Context(), ref)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			b.Fatalf("install-cni does not know the pod: %v\n%s", err, text)
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(agentStarts)
	return &nodeAgent{b, append(childrenOf(b, daemon.Process.Pid), daemon.Process.Pid)}
}

// agentStarts is longer than install-cni waits until it takes its start to be over, and gives
// memory back.
const agentStarts = 12 * time.Second

// agentEnvironment is the environment of install-cni on a node with directories below root.
func agentEnvironment(b *testing.B, n *node, cluster *fakecluster.Cluster, root string) []string {
	b.Helper()
	dir := func(name string) string {
		path := filepath.Join(root, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			b.Fatal(err)
		}
		return path
	}
	write := func(dir, name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	source, account := dir("source"), dir("account")
	write(source, "istio-cni", "the plugin")
	write(account, "token", token)
	write(account, "ca.crt", "")
	server := httptest.NewServer(cluster.Handler())
	b.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	return []string{
		"MOUNTED_CNI_NET_DIR=" + dir("net.d"), "MOUNTED_CNI_BIN_DIR=" + dir("bin"), "MOUNTED_CNI_CACHE_DIR=" + dir("cache"),
		"CNI_BIN_SOURCE_DIR=" + source, "SERVICE_ACCOUNT_DIR=" + account, "SETTINGS_DIR=" + dir("settings"),
		"CNI_AGENT_RUN_DIR=" + n.runDir, "HEALTH_ADDRESS=127.0.0.1:0", "MONITORING_PORT=0", "UNINSTALL_ON_DELETION=false",
		"POD_NAMESPACE=istio-system", "POD_NAME=istio-cni-node-x7k2p", "NODE_NAME=node-1", "KUBERNETES_SERVICE_PROTOCOL=http",
		"SKIP_TLS_VERIFY=true", "KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port,
	}
}

// childrenOf are the processes that another one has started.
func childrenOf(b *testing.B, pid int) (children []int) {
	b.Helper()
	tasks, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task/*/children"))
	if err != nil {
		b.Fatal(err)
	}
	for _, task := range tasks {
		data, _ := os.ReadFile(task) // the thread may have ended
		for _, text := range strings.Fields(string(data)) {
			child, err := strconv.Atoi(text)
			if err != nil {
				b.Fatal(err)
			}
			children = append(children, child)
		}
	}
	if len(children) == 0 {
		b.Fatalf("process %d has no child", pid)
	}
	return children
}

// cpu is the CPU time in nanoseconds that the processes have taken so far, together, once they have
// nothing left to do.
func (a *nodeAgent) cpu() float64 {
	a.Helper()
	for before := a.spent(); ; {
		time.Sleep(5 * time.Millisecond)
		after := a.spent()
		if after == before {
			return after
		}
		before = after
	}
}

func (a *nodeAgent) spent() (sum float64) {
	a.Helper()
	for _, pid := range a.processes {
		var spent unix.Timespec
		if err := unix.ClockGettime(cpuClock(pid), &spent); err != nil {
			a.Fatal(err)
		}
		sum += float64(spent.Nano())
	}
	return sum
}

// cpuClock is the clock of a process's CPU time, as clock_getcpuclockid(3) makes it.
func cpuClock(pid int) int32 {
	const scheduled = 2
	return int32(^pid<<3 | scheduled) //nolint:gosec // a process id has 22 bits
}
