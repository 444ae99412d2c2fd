// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// daemon runs install-cni, and starts it again when it ends. Its children are node-watcher and
// node-ambient.
type daemon struct {
	node    *node
	program string
	env     []string

	mu       sync.Mutex
	running  *exec.Cmd
	ended    bool
	attended sync.WaitGroup
}

// newDaemon builds the programs, and makes the node's directories for them. The daemon installs
// nothing: other tests do.
func (n *node) newDaemon(server string) *daemon {
	n.t.Helper()
	at, err := url.Parse(server)
	n.must(err)
	host, serverPort, err := net.SplitHostPort(at.Host)
	n.must(err)
	account := n.path("account")
	for _, dir := range []string{account, n.path("net.d"), n.path("bin"), n.path("source"), n.path("run")} {
		n.must(os.Mkdir(dir, 0o700))
	}
	n.must(os.WriteFile(filepath.Join(account, "token"), []byte("token"), 0o600))
	roots := n.tree.Roots
	d := &daemon{node: n, program: n.build("install-cni")}
	for name, value := range map[string]string{
		"AMBIENT_ENABLED": "true", "NODE_AMBIENT": n.build("node-ambient"), "NODE_WATCHER": n.build("node-watcher"), "NODE_NAME": nodeName,
		"DRAIN_TIMEOUT": "1s", "NATIVE_NFTABLES": "true", "ZTUNNEL_UDS_ADDRESS": n.path("ztunnel.sock"), "CNI_AGENT_RUN_DIR": n.path("run"),
		"MOUNTED_PROC_DIR": roots.Proc, "MOUNTED_NETNS_DIRS": roots.Netns[1], "MOUNTED_CNI_CACHE_DIR": filepath.Dir(roots.Results),
		"MOUNTED_CNI_NET_DIR": n.path("net.d"), "MOUNTED_CNI_BIN_DIR": n.path("bin"), "CNI_BIN_SOURCE_DIR": n.path("source"),
		"SETTINGS_DIR": n.path("settings"), "SERVICE_ACCOUNT_DIR": account, "POD_NAMESPACE": "istio-system", "POD_NAME": "istio-cni-node-x7k2p",
		"KUBERNETES_SERVICE_PROTOCOL": "http", "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": serverPort, "SKIP_TLS_VERIFY": "true",
		"CNI_ENABLE_INSTALL": "false", "UNINSTALL_ON_DELETION": "false", "REPAIR_ENABLED": "false", "MONITORING_PORT": "0",
		"HEALTH_ADDRESS": "127.0.0.1:0",
	} {
		d.env = append(d.env, name+"="+value)
	}
	n.t.Cleanup(d.end)
	return d
}

func (d *daemon) start() {
	d.attended.Go(func() {
		for d.run() {
		}
	})
}

// run runs the daemon until it ends, and reports whether to run it again.
func (d *daemon) run() bool {
	command := exec.Command(d.program)
	command.Env, command.Stdout, command.Stderr = d.env, d.node.log, d.node.log
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return false
	}
	err := command.Start()
	d.running = command
	d.mu.Unlock()
	if err != nil {
		d.node.t.Error(err)
		return false
	}
	_ = command.Wait() // it was killed
	return true
}

// kill kills one of the programs (SIGKILL), which is then started again. The daemon's children end
// with the daemon.
func (d *daemon) kill(name string) {
	d.node.t.Helper()
	if err := syscall.Kill(d.pid(name), syscall.SIGKILL); err != nil {
		d.node.t.Errorf("kill %s: %v", name, err)
	}
}

// explain has node-ambient end and say what each of its goroutines does, and logs where its threads
// are in the kernel.
func (d *daemon) explain() {
	d.node.t.Helper()
	process := child(d.own(), "node-ambient")
	if process == 0 {
		return
	}
	stacks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stack", process)) // the pattern is right
	for _, path := range stacks {
		text, _ := os.ReadFile(path) // only root may, and the thread may have ended
		d.node.t.Logf("%s:\n%s", path, text)
	}
	_ = syscall.Kill(process, syscall.SIGQUIT) // it may have ended
	for begin := time.Now(); child(d.own(), "node-ambient") == process && time.Since(begin) < time.Minute; {
		runtime.Gosched()
	}
}

// pid returns the id of the process of a program. It waits until there is one.
func (d *daemon) pid(name string) (pid int) {
	d.node.t.Helper()
	d.node.await("the start", func() error {
		if pid = d.own(); pid != 0 && name != "install-cni" {
			pid = child(pid, name)
		}
		if pid == 0 {
			return fmt.Errorf("%s does not run", name)
		}
		return nil
	})
	return pid
}

// own returns the id of the daemon's process, or 0 before its first start.
func (d *daemon) own() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running == nil {
		return 0
	}
	return d.running.Process.Pid
}

// child returns the id of a process's child with a name, or 0 if it has none (proc(5), stat).
func child(parent int, name string) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, path := range stats {
		text, _ := os.ReadFile(path) // the process may have ended
		before, after, _ := strings.Cut(string(text), ") ")
		pid, command, _ := strings.Cut(before, " (")
		fields := strings.Fields(after)
		if command == name && len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(parent) {
			found, _ := strconv.Atoi(pid) // the kernel writes a number
			return found
		}
	}
	return 0
}

func (d *daemon) end() {
	d.mu.Lock()
	d.ended = true
	if d.running != nil {
		_ = d.running.Process.Kill() // it may have ended
	}
	d.mu.Unlock()
	d.attended.Wait()
}
