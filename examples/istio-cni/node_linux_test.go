// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/kubeconfig"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(suite{m})) }

// suite runs the tests with a directory for what they build, and removes it after them.
type suite struct{ tests *testing.M }

func (s suite) Run() int {
	dir, err := os.MkdirTemp("", "istio-cni-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	return s.tests.Run()
}

var built string // a directory, see suite

// buildPlugin builds the plugin as it is shipped, and returns its directory.
var buildPlugin = sync.OnceValues(func() (string, error) {
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(built, "istio-cni"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return built, nil
})

const uid = "7f0b"

// node is what the plugin finds on a node: a run directory, an API server with one pod in the
// namespace shop, and the network namespace of the pod.
type node struct {
	t      *testing.T
	runDir string
	netns  *sandbox.Namespace
	// pod and namespace answer requests of the API server about them. The pod has a sidecar.
	pod, namespace http.HandlerFunc

	mu    sync.Mutex
	asked []string // paths of requests of the API server
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, runDir: t.TempDir(), pod: object(injected), namespace: object(`{"kind": "Namespace", "metadata": {"name": "shop"}}`)}
	netns, err := sandbox.NewNamespace(filepath.Join(n.runDir, "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Close(); err != nil {
			t.Error(err)
		}
	})
	n.netns = netns
	n.serve()
	return n
}

const (
	injected = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "shop", "name": "web-0", "uid": "7f0b",
		"annotations": {"sidecar.istio.io/status": "{}"}}, "spec": {"containers": [{"name": "web"}, {"name": "istio-proxy"}]}}`
	notInjected = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "shop", "name": "web-0", "uid": "7f0b"},
		"spec": {"containers": [{"name": "web"}]}}`
	ambientNamespace = `{"kind": "Namespace", "metadata": {"name": "shop", "labels": {"istio.io/dataplane-mode": "ambient"}}}`
)

// object answers with an object.
func object(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
}

// forbid answers that the plugin may not ask for this.
func forbid(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }

// serve starts the API server, and writes the kubeconfig that the node agent writes.
func (n *node) serve() {
	n.t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/shop/pods/web-0", func(w http.ResponseWriter, r *http.Request) { n.pod(w, r) })
	mux.HandleFunc("GET /api/v1/namespaces/shop", func(w http.ResponseWriter, r *http.Request) { n.namespace(w, r) })
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.asked = append(n.asked, r.URL.Path)
		n.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	n.t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		n.t.Fatal(err)
	}
	file, err := kubeconfig.Build(kubeconfig.Input{
		Server: address, Token: kubeconfig.NewToken("a-token"), Name: "istio-cni",
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(n.runDir, "istio-cni-kubeconfig"), file.YAML(), 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// requests returns the paths that the API server was asked for.
func (n *node) requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func (n *node) socket() string { return filepath.Join(n.runDir, "pluginevent.sock") }

// agent is the node's agent of ambient mode, which answers as the test says.
type agent struct {
	decision interception.Decision
	err      error

	mu       sync.Mutex
	pods     []event.Pod
	inodes   []uint64
	outcomes int // of requests and connections
	left     []event.Pod
	leftIn   []uint64 // inodes; 0 for a request without a namespace
	// ending, if not nil, answers a request to leave in the agent's place.
	ending func(context.Context) (held bool, err error)
}

// Enrol implements [event.Enroller].
func (a *agent) Enrol(_ context.Context, pod event.Pod, namespace *os.File) (interception.Decision, error) {
	var stat syscall.Stat_t
	err := syscall.Fstat(int(namespace.Fd()), &stat)
	if err := errors.Join(err, namespace.Close()); err != nil {
		return interception.Decision{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods, a.inodes = append(a.pods, pod), append(a.inodes, stat.Ino)
	return a.decision, a.err
}

// Leave implements [event.Leaver].
func (a *agent) Leave(ctx context.Context, pod event.Pod, namespace *os.File) (held bool, err error) {
	var stat syscall.Stat_t
	if namespace != nil {
		if err := syscall.Fstat(int(namespace.Fd()), &stat); err != nil {
			return false, err
		}
	}
	a.mu.Lock()
	a.left, a.leftIn = append(a.left, pod), append(a.leftIn, stat.Ino)
	a.mu.Unlock()
	if a.ending != nil {
		return a.ending(ctx)
	}
	return true, nil
}

// departed returns the pods whose end the agent was told, and the inodes of their namespaces.
func (a *agent) departed() ([]event.Pod, []uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left, a.leftIn
}

func (a *agent) observe(event.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcomes++
}

// seen returns the pods that the agent was asked about, and the inodes of their namespaces.
func (a *agent) seen() ([]event.Pod, []uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods, a.inodes
}

// startAgent serves the event socket until the test ends.
func (n *node) startAgent(a *agent) *agent {
	n.t.Helper()
	server, err := event.Listen(n.t.Context(), n.socket(), event.Options{Enroller: a, Leaver: a, Observe: a.observe})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- server.Serve(ctx) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	return a
}

// enrolling is an agent that enrols every pod.
func enrolling() *agent {
	return &agent{decision: interception.Decision{Capture: true, Reason: "selected", Detail: "selector 2", OfPod: true}}
}

// previous is a result of the plugin before.
const previous = `{"cniVersion": "1.0.0", "interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "/ns"}],
	"ips": [{"interface": 1, "address": "10.244.1.6/24"}, {"interface": 1, "address": "fd00::6/64"}]}`

// entry is the plugin's entry, as the node agent writes it, with settings.
func (n *node) entry(settings ...string) string {
	n.t.Helper()
	entry := map[string]any{
		"type": "istio-cni", "cni_agent_run_dir": n.runDir, "ambient_enabled": true, "pod_namespace": "istio-system",
		"exclude_namespaces": []string{"kube-system"}, "timeout": "1h", "plugin_log_level": "debug",
	}
	for _, text := range settings {
		if err := json.Unmarshal([]byte(text), &entry); err != nil {
			n.t.Fatal(err)
		}
	}
	text, err := json.Marshal(entry)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// list is a network of a plugin that makes a result, and ours; or of ours alone without a result.
func (n *node) list(result string, settings ...string) *libcni.NetworkConfigList {
	n.t.Helper()
	plugins := n.entry(settings...)
	if result != "" {
		script := "#!/bin/sh\ncat <<'END'\n" + result + "\nEND\n"
		syscall.ForkLock.RLock() // a process started now would hold the file open for writing, and no process could execute it
		err := os.WriteFile(filepath.Join(n.runDir, "first"), []byte(script), 0o700)
		syscall.ForkLock.RUnlock()
		if err != nil {
			n.t.Fatal(err)
		}
		plugins = `{"type": "first"}, ` + plugins
	}
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "pods", "plugins": [%s]}`, plugins))
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

// runtime is the ADD of a pod.
func (n *node) runtime(namespace, name string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: name, NetNS: n.netns.Path(), IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", uid},
	}}
}

// cni runs the plugin as container runtimes do.
func (n *node) cni() *libcni.CNIConfig {
	n.t.Helper()
	dir, err := buildPlugin()
	if err != nil {
		n.t.Fatal(err)
	}
	quiet := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: io.Discard}}
	return libcni.NewCNIConfigWithCacheDir([]string{dir, n.runDir}, filepath.Join(n.runDir, "cache"), quiet)
}

// add is the ADD of the pod shop/web-0, after a plugin that gives it two addresses.
func (n *node) add(settings ...string) (types.Result, error) {
	n.t.Helper()
	return n.cni().AddNetworkList(n.t.Context(), n.list(previous, settings...), n.runtime("shop", "web-0"))
}

// mustAdd is an ADD that succeeds, and returns what the plugin reports of it.
func (n *node) mustAdd(settings ...string) podsource.Result {
	n.t.Helper()
	if _, err := n.add(settings...); err != nil {
		n.t.Fatal(err)
	}
	return n.reported()
}

// mustFail is an ADD that fails with a code, and with texts in its message or its remedy.
func (n *node) mustFail(code uint, texts []string, settings ...string) {
	n.t.Helper()
	_, err := n.add(settings...)
	wantFailure(n.t, err, code, texts...)
}

func wantFailure(t *testing.T, err error, code uint, texts ...string) {
	t.Helper()
	var failure *types.Error
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, want an error with code %d", err, code)
	}
	if failure.Code != code || failure.Details == "" {
		t.Errorf("got code %d, want %d: %v", failure.Code, code, failure)
	}
	for _, text := range texts {
		if !strings.Contains(failure.Msg+"\n"+failure.Details, text) {
			t.Errorf("%q is not in %q, details %q", text, failure.Msg, failure.Details)
		}
	}
}

// reported is the last result that the plugin keeps for the node agent.
func (n *node) reported() (r podsource.Result) {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.runDir, "istio-cni.results"))
	if err != nil {
		n.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		n.t.Fatal(err)
	}
	return r
}
