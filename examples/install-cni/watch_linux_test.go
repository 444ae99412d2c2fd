// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// clusterFor gives a node an API server and the node-watcher.
func clusterFor(t *testing.T, n *testNode) *fakecluster.Cluster {
	t.Helper()
	cluster := fakecluster.New()
	server := httptest.NewServer(cluster.Handler())
	t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n.prepare(nil, map[string]string{
		"NODE_NAME": "node-1", "NODE_WATCHER": build(t, nodeWatcher), "KUBERNETES_SERVICE_PROTOCOL": "http", "SKIP_TLS_VERIFY": "true",
		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
	})
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: "7f0b", Node: "node-1"})
	return cluster
}

// TestPodsOfTheNode also kills the node-watcher.
func TestPodsOfTheNode(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	clusterFor(t, n)
	p := n.startReady()
	agent := podsource.Agent{RunDir: n.runDir}
	web := podsource.Ref{Namespace: "shop", Name: "web-0", UID: "7f0b"}
	if pod, err := agent.Pod(t.Context(), web); err != nil || len(pod.Containers) != 2 {
		t.Errorf("got %+v, %v", pod, err)
	}
	if status, err := agent.Status(t.Context()); err != nil || !status.Ready {
		t.Errorf("got %+v, %v", status, err)
	}
	p.wantPluginReady()

	p.killWatcher()
	p.waitReady()
	if _, err := agent.Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
	if text := p.log.String(); strings.Count(text, "it is started again") != strings.Count(text, `it is started again" part=pods`) {
		t.Errorf("another part was started again:\n%s", text)
	}
}

// killWatcher kills the node-watcher that was started last, and waits until another one is started.
func (p *process) killWatcher() {
	p.node.t.Helper()
	watching := regexp.MustCompile(`msg="a program was started" program=node-watcher process=(\d+)`)
	started := watching.FindAllStringSubmatch(p.log.String(), -1)
	pid, err := strconv.Atoi(started[len(started)-1][1])
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		p.node.t.Fatal(err)
	}
	p.waitLine(`msg="a part failed; it is started again" part=pods`, "signal: killed")
	p.waitLog("watched again", func() bool { return len(watching.FindAllString(p.log.String(), -1)) > len(started) })
}

// wantPluginReady asks the plugin itself.
func (p *process) wantPluginReady() {
	p.node.t.Helper()
	n := p.node
	command := exec.Command(build(n.t, istioCNI))
	command.Env = []string{"CNI_COMMAND=STATUS", "CNI_PATH=/"}
	command.Stdin = strings.NewReader(`{"cniVersion":"1.1.0","name":"n","type":"istio-cni","status_policy":"strict","cni_agent_run_dir":"` + n.runDir + `"}`)
	if output, err := command.CombinedOutput(); err != nil {
		n.t.Errorf("STATUS: %v\n%s", err, output)
	}
	if _, err := os.Stat(filepath.Join(n.runDir, "istio-cni.ready")); err != nil {
		n.t.Errorf("the plugin did not note that it is ready: %v", err)
	}
}

// TestAPIServerThatIsAway is unreachable from the start: everything works that does not need it.
func TestAPIServerThatIsAway(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	cluster.Refuse(http.StatusServiceUnavailable)
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "not ready\npods: the API server doesn't answer about the pods of node node-1")
	n.until("installed", n.netDir, func() bool { return n.hasEntry("10-calico.conflist") })
	agent := podsource.Agent{RunDir: n.runDir}
	if status, err := agent.Status(t.Context()); err != nil || status.Ready || !strings.Contains(status.Reason, "API server") {
		t.Errorf("got %+v, %v", status, err)
	}
	_, err := agent.Pod(t.Context(), podsource.Ref{Namespace: "shop", Name: "web-0"})
	if failure := (*podsource.Error)(nil); !errors.As(err, &failure) || !errors.Is(err, podsource.ErrNotReady) || failure.Attempts != 1 {
		t.Errorf("got %v", err)
	}
	cluster.Refuse(0)
	p.waitReady()
	if _, err := agent.Pod(t.Context(), podsource.Ref{Namespace: "shop", Name: "web-0"}); err != nil {
		t.Error(err)
	}
	if strings.Contains(p.log.String(), "part=pods error") {
		t.Errorf("the process was started again:\n%s", p.log)
	}
}

// TestAPIServerThatRefuses from the start is reported at once, and the node becomes ready when the
// API server answers.
func TestAPIServerThatRefuses(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := reserved.Addr().String()
	if err := reserved.Close(); err != nil {
		t.Fatal(err)
	}
	_, n.env["KUBERNETES_SERVICE_PORT"], err = net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "pods: the API server doesn't answer about the pods of node node-1: refused: ")
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: cluster.Handler(), ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // the server ends with the test
	t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	p.waitReady()
}

func TestNoWatcher(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.env["NODE_NAME"] = "node-1"
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "not ready\npods: watch the node's pods: find node-watcher beside this program: tests name")
	n.until("installed", n.netDir, func() bool { return n.hasEntry("10-calico.conflist") })
}

// TestWatchedEnd: the API server refuses requests for the DaemonSet, while a watch keeps reporting
// the installation's ConfigMap.
func TestWatchedEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status     int
		then       func(*fakecluster.Cluster)
		says       []string // the reports that the daemon received before it is stopped
		uninstalls bool
	}{
		"account made anew":            {http.StatusUnauthorized, func(*fakecluster.Cluster) {}, nil, false},
		"role made anew":               {http.StatusForbidden, func(*fakecluster.Cluster) {}, nil, false},
		"all deleted, account first":   {http.StatusUnauthorized, uninstalled, []string{"ConfigMap was removed"}, true},
		"all deleted, role first":      {http.StatusForbidden, uninstalled, []string{"ConfigMap was removed"}, true},
		"all deleted, and all is back": {http.StatusUnauthorized, reinstalled, []string{"ConfigMap was removed", "ConfigMap is there"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newReadyNode(t)
			cluster := fakecluster.New()
			server := n.withAPIServerBeside(cluster.Handler())
			t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable) })
			cluster.PutConfigMap("istio-system", "installed")
			n.prepare(nil, map[string]string{
				"NODE_NAME": "node-1", "NODE_WATCHER": build(t, nodeWatcher), "INSTALLATION_CONFIG_MAP": "installed", "LOG_OUTPUT_LEVEL": "debug",
			})
			p := n.startAcquainted()
			p.untilLogged("ConfigMap is there")
			server.say(test.status, "")
			cluster.Refuse(test.status) // ends the watch of pods, but not that of the ConfigMap
			test.then(cluster)
			for _, says := range test.says {
				p.untilLogged(says)
			}
			if len(test.says) > 1 {
				p.waitLog("the ConfigMap is back", func() bool { return strings.Count(p.log.String(), "ConfigMap is there") == 2 })
			}
			p.end()
			if got := n.hasEntry("10-calico.conflist"); got == test.uninstalls {
				t.Errorf("the entry is there: %v", got)
			}
		})
	}
}

func uninstalled(c *fakecluster.Cluster) { c.DeleteConfigMap("istio-system", "installed") }

func reinstalled(c *fakecluster.Cluster) {
	uninstalled(c)
	c.PutConfigMap("istio-system", "installed")
}
