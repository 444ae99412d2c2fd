// SPDX-License-Identifier: Apache-2.0

package ambientplugin_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/internal/ambientplugin"
	"github.com/meshcni/meshcni/interception/plugin"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

// node has an API server that answers by the handler.
type node struct {
	request plugin.Request
	log     *bytes.Buffer
	socket  string
}

func newNode(t *testing.T, answer http.HandlerFunc) *node {
	t.Helper()
	runDir := t.TempDir()
	netns, err := sandbox.NewNamespace(filepath.Join(runDir, "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Close(); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(runDir, "kubeconfig")
	text := fmt.Sprintf(`{"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "u", "user": {}}],
		"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := new(bytes.Buffer)
	return &node{log: log, socket: filepath.Join(runDir, "pluginevent.sock"), request: plugin.Request{
		Command: "ADD", Pod: podsource.Ref{Namespace: "shop", Name: "web-0", UID: "7f0b"}, Netns: netns.Path(),
		Config: pluginconf.Config{AmbientEnabled: true, CNIVersion: "1.0.0", RunDir: runDir, Kubeconfig: kubeconfig},
		Log:    slog.New(slog.NewTextHandler(log, nil)),
	}}
}

// inMesh answers for a pod of the ambient mesh.
func inMesh(w http.ResponseWriter, r *http.Request) {
	text := `{"kind": "Namespace", "metadata": {"name": "shop", "labels": {"istio.io/dataplane-mode": "ambient"}}}`
	if strings.HasSuffix(r.URL.Path, "/web-0") {
		text = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "shop", "name": "web-0", "uid": "7f0b"}}`
	}
	_, _ = fmt.Fprint(w, text)
}

// listen answers each request on the agent's socket by a function, and counts the requests.
func (n *node) listen(t *testing.T, answer func(net.Conn)) *atomic.Int32 {
	t.Helper()
	listener, err := net.Listen("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	requests := new(atomic.Int32)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			requests.Add(1)
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				t.Errorf("the request: %v", err)
			}
			answer(conn)
			_ = conn.Close()
		}
	}()
	return requests
}

// TestGivesUp has an agent that ends again and again before it answers. The hook stops asking after
// some rounds, and at once when its time is over.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	n := newNode(t, inMesh)
	requests := n.listen(t, func(net.Conn) {})
	hook := ambientplugin.Hook{Backoff: func(int) time.Duration { return 0 }}
	_, decided, err := hook.Before(t.Context(), n.request)
	var failure *plugin.Error
	if decided || !errors.As(err, &failure) || failure.Code != 200 || requests.Load() != 29 {
		t.Errorf("Before = %v, %v after %d requests", decided, err, requests.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	hook.Backoff = func(int) time.Duration { cancel(); return time.Hour }
	if _, _, err := hook.Before(ctx, n.request); !errors.As(err, &failure) || failure.Code != 201 || requests.Load() != 30 {
		t.Errorf("Before = %v after %d requests", err, requests.Load())
	}
}

// endings answers like agents that end before they answer, so many times, and then like one that
// enrols the pod.
func endings(times int) func(net.Conn) {
	return func(conn net.Conn) {
		if times--; times < 0 {
			_, _ = fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 36\r\n\r\n"+`{"capture":true,"reason":"selected"}`)
		}
	}
}

// TestHandOver has one agent hand over to another: the pod is enrolled, and the API server is not
// asked.
func TestHandOver(t *testing.T) {
	t.Parallel()
	n := newNode(t, notAsked(t))
	n.listen(t, endings(3))
	if decision, decided, err := (ambientplugin.Hook{}).Before(t.Context(), n.request); !decided || err != nil {
		t.Errorf("Before = %v, %v, %v", decision, decided, err)
	}
}

// TestHandOverWhileTheServerIsAway has an agent that is away for longer, and no API server that
// tells about the pod. The pod waits for the agent, even where it might start without.
func TestHandOverWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	for _, policy := range []pluginconf.FailPolicy{{Default: pluginconf.FailClosed}, {Default: pluginconf.FailOpen}} {
		n := newNode(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		n.listen(t, endings(25))
		n.request.Config.FailPolicy = policy
		hook := ambientplugin.Hook{Backoff: func(int) time.Duration { return 0 }}
		if decision, decided, err := hook.Before(t.Context(), n.request); !decided || err != nil {
			t.Errorf("%+v: Before = %v, %v, %v", policy, decision, decided, err)
		}
	}
}

// TestLeavesTimeForTheSidecar has an API server that does not answer: half of the time is left, in
// which another source may know the pod.
func TestLeavesTimeForTheSidecar(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	n := newNode(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	})
	t.Cleanup(func() { close(ended) })
	n.request.Config.FailPolicy = pluginconf.FailPolicy{Default: pluginconf.FailOpen}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	_, decided, err := ambientplugin.Hook{}.Before(ctx, n.request)
	if decided || err != nil || ctx.Err() != nil {
		t.Errorf("Before = %v, %v, and the time is over: %v", decided, err, ctx.Err())
	}
	if text := n.log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "fail_policy is open") || !strings.Contains(text, n.socket) {
		t.Errorf("the log is %q", text)
	}
	n.request.Config.FailPolicy.Default = pluginconf.FailClosed
	short, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	var failure *plugin.Error
	if _, _, err := (ambientplugin.Hook{}).Before(short, n.request); !errors.As(err, &failure) || failure.Code != 201 || !errors.Is(err, podsource.ErrTimeout) {
		t.Errorf("with a closed policy: %v", err)
	}
}

func TestAnswerOfAnotherKind(t *testing.T) {
	t.Parallel()
	n := newNode(t, notAsked(t))
	n.listen(t, func(conn net.Conn) { _, _ = fmt.Fprint(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") })
	_, _, err := ambientplugin.Hook{}.Before(t.Context(), n.request)
	var failure *plugin.Error
	if !errors.As(err, &failure) || failure.Code != 214 {
		t.Errorf("Before = %v", err)
	}
}

// TestAnotherUsersSocket hands no namespace to a program of another user.
func TestAnotherUsersSocket(t *testing.T) {
	t.Parallel()
	n := newNode(t, notAsked(t))
	directory := filepath.Dir(n.socket)
	err := errors.Join(os.Chmod(filepath.Dir(directory), 0o711), os.Chmod(directory, 0o777))
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	if !sandboxtest.AsAnotherUser(t, func() { listener, err = net.Listen("unix", n.socket) }) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, _, err = ambientplugin.Hook{}.Before(t.Context(), n.request)
	var failure *plugin.Error
	if !errors.As(err, &failure) || failure.Code != 203 || !strings.Contains(failure.Remedy, "which user's program listens at "+n.socket) {
		t.Errorf("Before = %v", err)
	}
}

func notAsked(t *testing.T) http.HandlerFunc {
	t.Helper()
	return func(http.ResponseWriter, *http.Request) { t.Error("the API server was asked") }
}

// TestCheck compares with what the agent observes, and hands over nothing.
func TestCheck(t *testing.T) {
	t.Parallel()
	const enrolled = `{"uid": "7f0b", "eligible": true, "reason": "selected", "managed": true, "rules": "planned"}`
	for name, test := range map[string]struct {
		pods, answer string
		decided      bool
		fails        string
		warns        bool
	}{
		"enrolled":               {pods: enrolled, decided: true},
		"captured, and waits":    {pods: strings.Replace(enrolled, "{", `{"step": "await-proxy", "inSets": true, `, 1), decided: true, warns: true},
		"waits for its turn":     {pods: strings.Replace(enrolled, "{", `{"step": "await-turn", "inSets": true, `, 1), decided: true, warns: true},
		"outside":                {pods: `{"uid": "7f0b", "reason": "not-selected"}`},
		"unknown":                {},
		"waits":                  {pods: strings.Replace(enrolled, "{", `{"step": "serve", "error": "no proxy has ever connected", `, 1), fails: "no proxy has ever connected"},
		"refused":                {pods: strings.Replace(enrolled, "{", `{"step": "serve", "refusal": "no such identity", `, 1), fails: "no such identity"},
		"not begun":              {pods: strings.Replace(enrolled, `"managed": true, `, "", 1), fails: "has not begun"},
		"other rules":            {pods: strings.Replace(enrolled, "planned", "other", 1), fails: `its rules are "other"`},
		"an agent that is older": {answer: "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", warns: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, notAsked(t))
			n.request.Command = "CHECK"
			n.listen(t, func(conn net.Conn) {
				text := test.answer
				if text == "" {
					body := `{"complete": true, "proxy": {"connection": "connected"}, "pods": [` + test.pods + `]}`
					text = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				}
				_, _ = fmt.Fprint(conn, text)
			})
			_, decided, err := ambientplugin.Hook{}.Before(t.Context(), n.request)
			var failure *plugin.Error
			if decided != test.decided || (err != nil) != (test.fails != "") {
				t.Errorf("Before = %v, %v", decided, err)
			}
			if err != nil && (!errors.As(err, &failure) || failure.Code != 220 || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("Before = %v, want %q", err, test.fails)
			}
			if warned := strings.Contains(n.log.String(), "level=WARN"); warned != test.warns {
				t.Errorf("the log is %q", n.log)
			}
		})
	}
}
