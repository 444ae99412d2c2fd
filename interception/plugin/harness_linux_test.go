// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"
	"github.com/google/nftables"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	meshnft "github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/sidecar"
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

// pluginName is what the tests' plugin is called, and the owner of its rules.
const pluginName = "istio-cni"

var built string // a directory, see suite

const (
	token = "the.bearer.token-of-this-test"
	uid   = "11111111-2222-3333-4444-555555555555"
)

// node is what a plugin finds on a node: a run directory with a kubeconfig, an API server, and the
// network namespace of a pod.
type node struct {
	t      testing.TB
	runDir string
	netns  *sandbox.Namespace
	server *httptest.Server
	calls  atomic.Int32
	// build is the plugin that is installed, as a process; plugin(t) where there is none.
	build string
	// limits are those of the plugin in this process.
	limits limits
}

// ample is more time than anything takes, however busy the machine is: a test that waits so long
// for nothing ends with all tests.
const ample = time.Hour

// ampleLimits let nothing come too late but what never comes.
func ampleLimits() limits {
	return limits{Agent: ample, AgentRequest: ample, ServerRequest: ample, StatusAgent: ample, StatusServer: ample, Tell: ample, Deleted: ample}
}

// newNode makes a node whose API server answers with answer.
func newNode(t testing.TB, answer http.HandlerFunc) *node {
	t.Helper()
	return newNodeWithNetns(t, answer, sandbox.NewNamespace)
}

// newNodeWithNetns is newNode with another kind of network namespace for the pod.
func newNodeWithNetns(t testing.TB, answer http.HandlerFunc, newNetns func(path string) (*sandbox.Namespace, error)) *node {
	t.Helper()
	n := &node{t: t, runDir: t.TempDir(), limits: ampleLimits()}
	n.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.calls.Add(1)
		answer(w, r)
	}))
	n.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	n.server.StartTLS()
	t.Cleanup(n.server.Close)
	n.writeKubeconfig(n.server.URL, token)
	var err error
	if n.netns, err = newNetns(filepath.Join(n.runDir, "netns")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.netns.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) kubeconfig() string {
	return filepath.Join(n.runDir, pluginconf.PathsOf(pluginName).Kubeconfig)
}

// writeKubeconfig writes what the node agent writes.
func (n *node) writeKubeconfig(server, token string) {
	n.t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		n.t.Fatal(err)
	}
	file, err := kubeconfig.Build(kubeconfig.Input{
		Server: address, Token: kubeconfig.NewToken(token), Name: "istio-cni",
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.server.Certificate().Raw}),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.kubeconfig(), file.YAML(), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// configuration is the plugin's entry as Istio's installer writes it, inserted into a list by a
// runtime, with settings of ours. Its timeout is ample, for the tests that aren't about it.
func (n *node) configuration(settings ...string) []byte {
	n.t.Helper()
	return merge(n.t, fmt.Appendf(nil, `{
		"cniVersion": "1.0.0", "name": "k8s-pod-network", "type": "istio-cni",
		"plugin_log_level": "debug", "cni_agent_run_dir": %q,
		"ambient_enabled": false, "enablement_selectors": [{"podSelector": {}}],
		"exclude_namespaces": ["istio-system", "kube-system"], "pod_namespace": "istio-system", "native_nftables": false,
		"kubernetes": {"unknown": ["key"]}, "timeout": %q
	}`, n.runDir, ample), settings...)
}

// merge sets keys of a configuration.
func merge(t testing.TB, configuration []byte, settings ...string) []byte {
	t.Helper()
	document := map[string]json.RawMessage{}
	for _, text := range append([]string{string(configuration)}, settings...) {
		if err := json.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const podArgs = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=" + uid

// add are the arguments of an ADD of the pod.
func (n *node) add(settings ...string) *skel.CmdArgs {
	n.t.Helper()
	return &skel.CmdArgs{
		ContainerID: "abc", Netns: n.netns.Path(), IfName: "eth0", Args: podArgs, Path: n.runDir, StdinData: n.configuration(settings...),
	}
}

// outcome is what a run of the plugin left.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs an ADD in this process.
func (n *node) run(args *skel.CmdArgs) outcome {
	n.t.Helper()
	return n.call("ADD", args)
}

func (n *node) runWith(args *skel.CmdArgs, dataplane func() (interception.Dataplane, error)) outcome {
	n.t.Helper()
	return n.runIn(n.t.Context(), "ADD", args, single(dataplane))
}

// single makes candidates of one dataplane.
func single(dataplane func() (interception.Dataplane, error)) func() ([]choice.Candidate, error) {
	return func() ([]choice.Candidate, error) {
		d, err := dataplane()
		return []choice.Candidate{{Name: choice.NFTables, Dataplane: d}}, err
	}
}

// options are those of examples/istio-cni, for a plugin in this process.
func options() Options {
	return Options{
		Name:    "istio-cni",
		Version: "test",
		Mesh:    sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"},
		Dataplanes: single(func() (interception.Dataplane, error) {
			return meshnft.New(meshnft.Options{Foreign: true})
		}),
		OtherBuild:    OtherBuild{Name: "the build with the Go tag iptables", Remedy: "install bin/istio-cni-iptables"},
		AmbientRemedy: "for ambient mode use another plugin",
		Installer:     "install-cni",
		Uninstall:     "run install-cni uninstall on this node, with the mounts of the node agent",
	}
}

// call runs a command in this process.
func (n *node) call(command string, args *skel.CmdArgs) outcome {
	n.t.Helper()
	return n.runIn(n.t.Context(), command, args, options().Dataplanes)
}

// binary is the path of a plugin that is installed on the node.
func (n *node) binary() string { return filepath.Join(n.runDir, pluginName) }

func (n *node) runIn(
	ctx context.Context, command string, args *skel.CmdArgs, dataplanes func() ([]choice.Candidate, error),
) outcome {
	n.t.Helper()
	o := options()
	o.Dataplanes = dataplanes
	return n.runAs(ctx, o, command, args)
}

// runAs runs a command in this process, of a plugin with other options.
func (n *node) runAs(ctx context.Context, o Options, command string, args *skel.CmdArgs) outcome {
	n.t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(ctx, &env{
		Options: o,
		Getenv: func(key string) string {
			return map[string]string{
				"CNI_COMMAND": command, "CNI_CONTAINERID": args.ContainerID, "CNI_IFNAME": args.IfName, "CNI_NETNS": args.Netns,
				"CNI_ARGS": args.Args,
			}[key]
		},
		Stdin:  bytes.NewReader(args.StdinData),
		Stdout: &stdout, Stderr: &stderr,
		Serve:      serve(command, args),
		Executable: func() (string, error) { return n.binary(), nil },
		Limits:     n.limits,
		Backoff:    func(int) time.Duration { return 0 },
	})
	came := outcome{code, stdout.String(), stderr.String()}
	came.checkForSecrets(n.t)
	n.checkForSecrets()
	return came
}

// serve stands in for skel: it has read the command already.
func serve(command string, args *skel.CmdArgs) func(skel.CNIFuncs, cniversion.PluginInfo, string) *types.Error {
	return func(funcs skel.CNIFuncs, _ cniversion.PluginInfo, _ string) *types.Error {
		err := map[string]func(*skel.CmdArgs) error{
			"ADD": funcs.Add, "CHECK": funcs.Check, "GC": funcs.GC, "STATUS": funcs.Status,
		}[command](args)
		var coded *types.Error
		if err != nil && !errors.As(err, &coded) {
			return types.NewError(types.ErrInternal, err.Error(), "")
		}
		return coded
	}
}

func (o outcome) checkForSecrets(t testing.TB) {
	t.Helper()
	for _, text := range []string{o.stdout, o.stderr} {
		if strings.Contains(text, token) {
			t.Errorf("the token is shown in %s", text)
		}
	}
}

// checkForSecrets looks at what the plugin left in the run directory.
func (n *node) checkForSecrets() {
	n.t.Helper()
	for _, pattern := range []string{"istio-cni.*", "journal/*"} {
		paths, err := filepath.Glob(filepath.Join(n.runDir, pattern))
		if err != nil {
			n.t.Fatal(err)
		}
		for _, path := range paths {
			if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(token)) {
				n.t.Errorf("the token is in %s", path)
			}
		}
	}
}

// mustSucceed wants a result and nothing else on standard output.
func (o outcome) mustSucceed(t *testing.T) {
	t.Helper()
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if !json.Valid([]byte(o.stdout)) {
		t.Fatalf("standard output is no JSON:\n%s", o.stdout)
	}
}

// mustFail wants an error of the specification with that code, and returns it.
func (o outcome) mustFail(t *testing.T, code uint) errorResult {
	t.Helper()
	var e errorResult
	if err := json.Unmarshal([]byte(o.stdout), &e); err != nil || e.Error == nil || o.code != 1 {
		t.Fatalf("exit code %d, %v\n%s%s", o.code, err, o.stdout, o.stderr)
	}
	if e.Code != code {
		t.Errorf("got code %d, want %d: %s", e.Code, code, o.stdout)
	}
	if e.Details == "" {
		t.Errorf("no remedy in the details: %s", o.stdout)
	}
	if !strings.Contains(o.stderr, `"level":"ERROR"`) {
		t.Errorf("the error was not logged: %s", o.stderr)
	}
	return e
}

// tables are the names of the nf_tables tables in the pod's namespace.
func (n *node) tables() []string {
	n.t.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.netns.File().Fd())))
	if err != nil {
		n.t.Fatal(err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		n.t.Fatal(err)
	}
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	return names
}

// pod answers with the pod web-0 of namespace shop, changed by edits of its JSON, and knows no
// other.
func pod(t testing.TB, edits ...string) http.HandlerFunc {
	t.Helper()
	body := injected(t)
	for i := 0; i < len(edits); i += 2 {
		changed := strings.Replace(body, edits[i], edits[i+1], 1)
		if changed == body {
			t.Fatalf("nothing to replace: %q", edits[i])
		}
		body = changed
	}
	known, unknown := answer(http.StatusOK, body), answer(http.StatusNotFound, "")
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/web-0") {
			known(w, r)
		} else {
			unknown(w, r)
		}
	}
}

func injected(t testing.TB) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "pod.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// answer answers with a body, to those with the token.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// failing is a dataplane that always fails.
type failing struct{ err error }

func (f failing) Apply(context.Context, *interception.Netns, *interception.Plan) error { return f.err }

func (f failing) Remove(context.Context, *interception.Netns, interception.Owner) error { return f.err }

func (f failing) Supports(*interception.Plan) error { return f.err }

func (f failing) Observe(context.Context, *interception.Netns, interception.Owner) (interception.State, error) {
	return interception.State{}, f.err
}
