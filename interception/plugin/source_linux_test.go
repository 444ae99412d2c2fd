// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

// agent is a node agent's view of its pods, and what plugins have told it.
type agent struct {
	err   error
	calls atomic.Int32

	lock   sync.Mutex
	pod    interception.Pod
	status podsource.AgentStatus
	heard  told
}

// told is what plugins report about their calls.
type told struct {
	logs    []podsource.LogEntry
	results []podsource.Result
}

func (a *agent) Pod(context.Context, podsource.Ref) (interception.Pod, error) {
	a.calls.Add(1)
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.pod, a.err
}

func (a *agent) Status(context.Context) (podsource.AgentStatus, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.status, nil
}

func (a *agent) Log(_ context.Context, entries []podsource.LogEntry) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.heard.logs = append(a.heard.logs, entries...)
	return nil
}

func (a *agent) Report(_ context.Context, results []podsource.Result) error {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.heard.results = append(a.heard.results, results...)
	return nil
}

// set has the agent know another pod from now on.
func (a *agent) set(pod interception.Pod) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.pod = pod
}

// become has the agent be in another state from now on.
func (a *agent) become(status podsource.AgentStatus) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.status = status
}

// told returns what the agent has received so far. It may receive more at any time, from a plugin
// that has given it up.
func (a *agent) told() told {
	a.lock.Lock()
	defer a.lock.Unlock()
	return told{slices.Clone(a.heard.logs), slices.Clone(a.heard.results)}
}

// agentOf knows the pod that the API server would answer with.
func agentOf(t testing.TB, edits ...string) *agent {
	t.Helper()
	text := injected(t)
	for i := 0; i+1 < len(edits); i += 2 {
		text = strings.ReplaceAll(text, edits[i], edits[i+1])
	}
	pod, err := podsource.ParsePod([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &agent{pod: pod}
}

// serve makes the agent the node's, until the test ends.
func (n *node) serve(a *agent) {
	n.t.Helper()
	n.serveBy(agentserver.Server{Pods: a, Status: a, Logs: a, Results: a})
}

func (n *node) serveBy(server agentserver.Server) *countingListener {
	n.t.Helper()
	socket, err := agentserver.Listen(n.t.Context(), n.runDir)
	if err != nil {
		n.t.Fatal(err)
	}
	listener := &countingListener{Listener: socket}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	return listener
}

// countingListener counts the connections that it accepted.
type countingListener struct {
	net.Listener
	accepted atomic.Int32
}

func (l *countingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return connection, err
}

func (n *node) mustLog(o outcome, text string) {
	n.t.Helper()
	if !strings.Contains(o.stderr, text) {
		n.t.Errorf("got log %s, want %s", o.stderr, text)
	}
}

func TestAgentSparesTheAPIServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits  []string
		log    string
		tables bool
	}{
		"in the mesh":     {nil, `"msg":"pod is captured"`, true},
		"not in the mesh": {[]string{`"name": "istio-proxy"`, `"name": "proxy"`}, `"reason":"no-proxy"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, func(http.ResponseWriter, *http.Request) { t.Error("the API server was asked") })
			if err := os.Remove(n.kubeconfig()); err != nil {
				t.Fatal(err)
			}
			n.serve(agentOf(t, test.edits...))
			o := n.run(n.add())
			o.mustSucceed(t)
			n.mustLog(o, test.log)
			n.mustLog(o, `"source":"agent"`)
			if got := n.tables() != nil; got != test.tables {
				t.Errorf("got tables %v", n.tables())
			}
		})
	}
}

func TestRuntimesAnnotations(t *testing.T) {
	t.Parallel()
	config := func(annotations string) string {
		return `{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": ` + annotations + `}}`
	}
	for name, test := range map[string]struct {
		settings string
		asked    bool
	}{
		"not injected":   {config(`{"kubernetes.io/config.source": "api"}`), false},
		"none there":     {config(`{}`), false},
		"injected":       {config(`{"sidecar.istio.io/status": "{}"}`), true},
		"opted out":      {config(`{"sidecar.istio.io/status": "{}", "sidecar.istio.io/inject": "false"}`), true},
		"none passed":    {config(`null`), true},
		"other settings": {`{"runtimeConfig": {"portMappings": []}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			a := &agent{err: podsource.ErrNotFound}
			n.serve(a)
			args := n.add(test.settings)
			o := n.run(args)
			o.mustSucceed(t)
			if !test.asked {
				n.mustLog(o, `"reason":"not-injected"`)
			}
			if asked := a.calls.Load() > 0; asked != test.asked || n.calls.Load() > 0 != test.asked || n.tables() != nil != test.asked {
				t.Errorf("asked agent %d, API server %d times, tables %v", a.calls.Load(), n.calls.Load(), n.tables())
			}
		})
	}
	t.Run("nothing with ambient mode", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, pod(t))
		n.run(n.add(config(`{}`), `{"ambient_enabled": true}`)).mustFail(t, 2)
	})
}

func TestFailPolicy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy string
		open   bool
	}{
		"none":                    {`{}`, false},
		"closed":                  {`{"default": "closed"}`, false},
		"open":                    {`{"default": "open"}`, true},
		"open for this one":       {`{"default": "closed", "open": ["a", "shop"]}`, true},
		"open for this one alone": {`{"open": ["shop"]}`, true},
		"open for another":        {`{"open": ["shopping"]}`, false},
		"closed for this one":     {`{"default": "open", "closed": ["shop"]}`, false},
		"closed for another":      {`{"default": "open", "closed": ["a"]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, answer(http.StatusForbidden, ""))
			o := n.run(n.add(`{"fail_policy": ` + test.policy + `}`))
			if test.open {
				o.mustSucceed(t)
				n.mustLog(o, `"level":"WARN","msg":"pod is left alone, in the mesh or not`)
				n.mustLog(o, "status 403")
			} else {
				o.mustFail(t, codeForbidden)
			}
			if n.tables() != nil {
				t.Errorf("got tables %v", n.tables())
			}
		})
	}
}

func TestFailPolicyIsAboutSourcesAlone(t *testing.T) {
	t.Parallel()
	const open = `{"fail_policy": {"default": "open"}}`
	t.Run("not about an invalid annotation", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, pod(t, `includeInboundPorts": "*"`, `includeInboundPorts": "none"`))
		n.run(n.add(open)).mustFail(t, codePod)
	})
	t.Run("not about the kernel", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, pod(t))
		o := n.runWith(n.add(open), func() (interception.Dataplane, error) { return failing{errors.New("refused")}, nil })
		o.mustFail(t, codeApply)
	})
	t.Run("not about a runtime that gives up", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		n := newNode(t, func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		o := n.runIn(ctx, "ADD", n.add(open), single(func() (interception.Dataplane, error) { return nil, errors.New("asked for") }))
		o.mustFail(t, codeTimeout)
	})
}

// leaveSocket leaves what an agent leaves that has ended.
func (n *node) leaveSocket() {
	n.t.Helper()
	listener, err := agentserver.Listen(n.t.Context(), n.runDir)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		n.t.Fatal(err)
	}
}

// TestAgentIsReplaced has an agent that has ended, and the API server refuse the token that it
// left. The plugin waits for the next agent's, and not for ever.
func TestAgentIsReplaced(t *testing.T) {
	t.Parallel()
	const each = 4 // how often a source asks
	for name, test := range map[string]struct {
		left    bool // the socket
		renewal int  // the request at which there is another token; 0 for never
		asked   int
		code    uint
	}{
		"soon":     {true, 2*each + 1, 2*each + 2, 0},
		"never":    {true, 0, (1 + replacementRounds) * each, 104},
		"no agent": {false, 2*each + 1, each, 104},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n *node
			n = newNode(t, func(w http.ResponseWriter, r *http.Request) {
				if int(n.calls.Load()) == test.renewal {
					n.writeKubeconfig(n.server.URL, token)
				}
				pod(t)(w, r) // with this token
			})
			n.writeKubeconfig(n.server.URL, "refused")
			if test.left {
				n.leaveSocket()
			}
			if o := n.run(n.add()); test.code == 0 {
				o.mustSucceed(t)
				n.mustLog(o, `"msg":"pod is captured"`)
			} else {
				o.mustFail(t, test.code)
			}
			if got := int(n.calls.Load()); got != test.asked {
				t.Errorf("the API server was asked %d times, want %d", got, test.asked)
			}
		})
	}
}
