// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight/look"
	"github.com/meshcni/meshcni/internal/footprint"
	"github.com/meshcni/meshcni/internal/testing/testlog"
)

const (
	patience = testlog.Patience
	// lookWithin is for a busy machine. The server of /metrics gives up after five seconds.
	lookWithin = 4 * time.Second
)

// testNode has a node's directories, and the environment of install-cni on it.
type testNode struct {
	t                                                                    testing.TB
	netDir, binDir, sourceDir, runDir, cacheDir, accountDir, settingsDir string
	env                                                                  map[string]string
	certificate                                                          string
	maps                                                                 int // of configMap
	dataplane                                                            func(log *slog.Logger, proc string) chooser
	look                                                                 func(context.Context, look.Options) preflight.View
	// dial connects commands to the health server. If it is nil, they reach the daemon that was
	// started last.
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	started *process
	// If not nil, trim is called a millisecond after any work.
	trim func() error
}

// newNode returns a node with a plugin to install, a service account and an API server's address,
// and no CNI configuration.
func newNode(t testing.TB) *testNode {
	t.Helper()
	root := t.TempDir()
	n := &testNode{
		t: t, netDir: filepath.Join(root, "net.d"), binDir: filepath.Join(root, "bin"), sourceDir: filepath.Join(root, "source"),
		runDir: filepath.Join(root, "run"), cacheDir: filepath.Join(root, "cache"), accountDir: filepath.Join(root, "account"),
		settingsDir: filepath.Join(root, "settings"), certificate: newCertificate(t),
		look: func(context.Context, look.Options) preflight.View { return preflight.View{} },
	}
	for _, directory := range []string{n.netDir, n.binDir, n.sourceDir, n.cacheDir, n.accountDir} {
		if err := os.Mkdir(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.env = map[string]string{
		"MOUNTED_CNI_NET_DIR": n.netDir, "MOUNTED_CNI_BIN_DIR": n.binDir, "MOUNTED_CNI_CACHE_DIR": n.cacheDir,
		"CNI_BIN_SOURCE_DIR": n.sourceDir, "CNI_AGENT_RUN_DIR": n.runDir, "SERVICE_ACCOUNT_DIR": n.accountDir,
		"SETTINGS_DIR": n.settingsDir, "HEALTH_ADDRESS": "127.0.0.1:0", "KUBERNETES_SERVICE_HOST": "10.110.0.1", "KUBERNETES_SERVICE_PORT": "443",
		"EXCLUDE_NAMESPACES": "istio-system", "POD_NAMESPACE": "istio-system", "POD_NAME": "istio-cni-node-x7k2p",
		"LOG_OUTPUT_LEVEL": "debug", "UNINSTALL_ON_DELETION": "false", "MONITORING_PORT": "0",
	}
	n.write(n.sourceDir, "istio-cni", "the plugin", 0o755)
	n.rotateToken("token-1")
	return n
}

// newCertificate returns the content of a cluster's ca.crt.
func newCertificate(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// rotateToken replaces the service account's directory through its links, as the kubelet does.
func (n *testNode) rotateToken(token string) {
	n.t.Helper()
	data := filepath.Join(n.accountDir, "..2026_"+strings.TrimPrefix(token, "token-"))
	if err := os.Mkdir(data, 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.write(data, "token", token, 0o600)
	n.write(data, "ca.crt", n.certificate, 0o600)
	for _, name := range []string{"token", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(n.accountDir, name)); err != nil && !os.IsExist(err) {
			n.t.Fatal(err)
		}
	}
	link := filepath.Join(n.accountDir, "..data_tmp")
	if err := os.Symlink(filepath.Base(data), link); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(n.accountDir, "..data")); err != nil {
		n.t.Fatal(err)
	}
}

// process is a run of install-cni inside the test's process.
type process struct {
	node   *testNode
	stop   context.CancelFunc
	done   chan struct{}
	code   int
	log    *testlog.Log
	health chan net.Addr

	mu        sync.Mutex
	addresses map[string]net.Addr // where it listens, by the setting's address
}

type listenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// start runs the daemon until stop is called, or the test ends.
func (n *testNode) start(args ...string) *process {
	n.t.Helper()
	return n.startListening((&net.ListenConfig{}).Listen, args...)
}

func (n *testNode) startListening(listen listenFunc, args ...string) *process {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{node: n, stop: cancel, done: make(chan struct{}), log: testlog.New(), health: make(chan net.Addr, 1), addresses: map[string]net.Addr{}}
	n.started = p
	env := n.environment(p.log, args...)
	if n.trim != nil {
		env.trim, env.trimAfter = n.trim, time.Millisecond
	}
	env.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		bound := address
		if strings.HasPrefix(address, ":") { // tests share the machine's ports
			bound = "127.0.0.1:0"
		}
		listener, err := listen(ctx, network, bound)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.addresses[address] = listener.Addr(); address == n.env["HEALTH_ADDRESS"] {
			p.health <- listener.Addr()
		}
		return listener, nil
	}
	go func() { defer close(p.done); p.code = run(ctx, env) }()
	n.t.Cleanup(func() {
		cancel()
		<-p.done
		if n.t.Failed() {
			n.t.Logf("log of the daemon:\n%s", p.log)
		}
		if text := p.log.String(); strings.Contains(text, "token-") {
			n.t.Errorf("the log has a token in it:\n%s", text)
		}
	})
	return p
}

// dialStarted connects to where the daemon that was started last listens instead of the address.
func (n *testNode) dialStarted(ctx context.Context, network, address string) (net.Conn, error) {
	if p := n.started; p != nil {
		p.mu.Lock()
		if bound := p.addresses[address]; bound != nil {
			address = bound.String()
		}
		p.mu.Unlock()
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func (n *testNode) environment(output io.Writer, args ...string) environment {
	dial := n.dial
	if dial == nil {
		dial = n.dialStarted
	}
	return environment{
		dial:       dial,
		args:       args,
		environ:    environ(n.env),
		stdout:     output,
		stderr:     output,
		listen:     (&net.ListenConfig{}).Listen,
		now:        time.Now,
		lookAround: 100 * time.Millisecond,
		trim:       footprint.Trim,
		trimAfter:  footprint.Quiet,
		lookWithin: lookWithin,
		executable: func() (string, error) { return "", errors.New("tests name what they start") },
		version:    "v1.2.3-test", dataplane: n.dataplane, look: n.look,
	}
}

// environ returns variables in the form of os.Environ.
func environ(variables map[string]string) []string {
	var environ []string
	for name, value := range variables {
		environ = append(environ, name+"="+value)
	}
	return environ
}

func (n *testNode) startReady(args ...string) *process {
	n.t.Helper()
	p := n.start(args...)
	p.waitReady()
	return p
}

// uninstall runs the command as in a process of its own.
func (n *testNode) uninstall(flags ...string) (code int, output string) {
	n.t.Helper()
	var out bytes.Buffer
	code = run(context.Background(), n.environment(&out, append([]string{"uninstall"}, flags...)...))
	return code, out.String()
}

func (n *testNode) mustUninstall(flags ...string) string {
	n.t.Helper()
	code, output := n.uninstall(flags...)
	if code != exitOK {
		n.t.Fatalf("uninstall: exit code %d:\n%s", code, output)
	}
	return output
}

// end stops the daemon, which must not fail.
func (p *process) end() {
	p.node.t.Helper()
	p.stop()
	p.wantExit(exitOK)
}

func (p *process) wantExit(code int) {
	p.node.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.node.t.Fatal("install-cni doesn't end")
	}
	if p.code != code {
		p.node.t.Fatalf("exit code %d, want %d", p.code, code)
	}
}

func (p *process) waitReady() {
	p.node.t.Helper()
	p.waitAnswer(http.StatusOK, "ok")
}

// waitLog waits until the condition holds, and checks it after each log line.
func (p *process) waitLog(what string, condition func() bool) {
	p.node.t.Helper()
	if !p.log.Await(patience, condition) {
		p.node.t.Fatalf("%s: not within %v", what, patience)
	}
}

// waitAnswer waits until /readyz answers so; the daemon logs whenever its answer changes.
func (p *process) waitAnswer(status int, part string) {
	p.node.t.Helper()
	var address net.Addr
	select {
	case address = <-p.health:
		p.health <- address
	case <-p.done:
		p.node.t.Fatalf("install-cni ended with code %d", p.code)
	case <-time.After(patience):
		p.node.t.Fatal("install-cni doesn't listen")
	}
	deadline := time.After(patience)
	for {
		got, body := get(p.node.t, "http://"+address.String()+"/readyz")
		if got == status && strings.Contains(body, part) {
			return
		}
		select {
		case <-p.log.News():
		case <-p.done:
			p.node.t.Fatalf("install-cni ended with code %d; /readyz had said %d %q", p.code, got, body)
		case <-deadline:
			p.node.t.Fatalf("/readyz = %d %q, want %d and %q", got, body, status, part)
		}
	}
}

func get(t testing.TB, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil || response.Body.Close() != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return response.StatusCode, string(data)
}

func (n *testNode) prepare(configurations, env map[string]string) {
	n.t.Helper()
	for name, content := range configurations {
		n.write(n.netDir, name, content, 0o644)
	}
	maps.Copy(n.env, env)
}

func (n *testNode) write(directory, name, content string, mode os.FileMode) {
	n.t.Helper()
	path := filepath.Join(directory, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) remove(directory, name string) {
	n.t.Helper()
	if err := os.Remove(filepath.Join(directory, name)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) read(directory, name string) string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(directory, name))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

// files returns a directory's files except sockets, with mode and content; it skips those that
// disappear meanwhile.
func (n *testNode) files(directory string) map[string]string {
	n.t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		n.t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		if entry.Type() == fs.ModeSocket {
			continue
		}
		path := filepath.Join(directory, entry.Name())
		info, err := os.Lstat(path)
		data, readErr := os.ReadFile(path)
		if err := errors.Join(err, readErr); err == nil {
			files[entry.Name()] = fmt.Sprintf("%v %s", info.Mode(), data)
		} else if !errors.Is(err, fs.ErrNotExist) {
			n.t.Fatal(err)
		}
	}
	return files
}

// until waits for a condition of the files in a directory, and checks it whenever a file changes.
func (n *testNode) until(what, directory string, condition func() bool) {
	n.t.Helper()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		n.t.Fatal(err)
	}
	defer watcher.Close()
	if err := watcher.Add(directory); err != nil {
		n.t.Fatal(err)
	}
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-watcher.Events:
		case err := <-watcher.Errors:
			n.t.Logf("events were lost: %v", err)
		case <-deadline:
			n.t.Fatalf("%s: not within %v; the directory has %v", what, patience, n.files(directory))
		}
	}
}

// hasEntry reports whether a configuration has the plugin's entry.
func (n *testNode) hasEntry(name string) bool {
	data, err := os.ReadFile(filepath.Join(n.netDir, name))
	if err != nil {
		return false
	}
	_, found, err := conflist.Find(data, "istio-cni")
	return err == nil && found
}

// wantOnly checks that the configuration directory has only these files.
func (n *testNode) wantOnly(names ...string) {
	n.t.Helper()
	want, got := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	for name := range n.files(n.netDir) {
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Errorf("files in %s (-want +got):\n%s", n.netDir, diff)
	}
}

// wantPlugins checks that a list has plugins of these types.
func (n *testNode) wantPlugins(name string, types ...string) {
	n.t.Helper()
	var list struct {
		Plugins []struct {
			Type string `json:"type"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal([]byte(n.read(n.netDir, name)), &list); err != nil {
		n.t.Errorf("%s: %v", name, err)
	}
	var got []string
	for _, plugin := range list.Plugins {
		got = append(got, plugin.Type)
	}
	if diff := cmp.Diff(types, got); diff != "" {
		n.t.Errorf("plugins of %s (-want +got):\n%s", name, diff)
	}
}
