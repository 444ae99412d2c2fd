// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception/podsource"
)

// ready notes that the plugin was ready so long ago.
func (n *node) ready(ago time.Duration) { n.mark(pluginName+".ready", ago) }

func (n *node) mark(name string, ago time.Duration) {
	n.t.Helper()
	if err := (mark{filepath.Join(n.runDir, name)}).set(time.Now().Add(-ago)); err != nil {
		n.t.Fatal(err)
	}
}

// TestSTATUSPolicies has no source that could answer for pods: the API server can't be reached.
func TestSTATUSPolicies(t *testing.T) {
	t.Parallel()
	never := func(*node) {}
	since := func(name string, ago time.Duration) func(*node) { return func(n *node) { n.mark(name, ago) } }
	for name, test := range map[string]struct {
		policy string
		before func(*node)
		code   uint
	}{
		"off":                                    {"off", since(pluginName+".ready", time.Minute), 0},
		"strict, never ready":                    {"strict", never, types.ErrPluginNotAvailable},
		"strict, asked a minute":                 {"strict", since(pluginName+".asked", time.Minute), types.ErrPluginNotAvailable},
		"strict, asked in the future":            {"strict", since(pluginName+".asked", -time.Hour), types.ErrPluginNotAvailable},
		"strict, asked for long":                 {"strict", since(pluginName+".asked", unreadyFor), 0},
		"strict, ready once":                     {"strict", since(pluginName+".ready", time.Minute), types.ErrPluginNotAvailable},
		"strict, ready once, asked for long":     {"strict", func(n *node) { n.ready(time.Minute); n.mark(pluginName+".asked", time.Hour) }, types.ErrPluginNotAvailable},
		"strict, ready long ago":                 {"strict", since(pluginName+".ready", unreadyFor), 0},
		"after-first-ready, never ready":         {"after-first-ready", never, 0},
		"after-first-ready, ready once":          {"after-first-ready", since(pluginName+".ready", time.Minute), types.ErrPluginNotAvailable},
		"after-first-ready, ready long ago":      {"after-first-ready", since(pluginName+".ready", unreadyFor), 0},
		"after-first-ready, ready in the future": {"after-first-ready", since(pluginName+".ready", -time.Hour), 0},
		"default, never ready":                   {"", never, 0},
		"default, ready once":                    {"", since(pluginName+".ready", time.Minute), types.ErrPluginNotAvailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			n.server.Close()
			test.before(n)
			o := n.call("STATUS", n.add(`{"status_policy": "`+test.policy+`"}`))
			if test.code == 0 {
				if o.code != 0 || o.stdout != "" {
					t.Errorf("got %+v", o)
				}
				return
			}
			e := o.mustFail(t, test.code)
			if !strings.Contains(e.Msg, "agent.sock") || !strings.Contains(e.Msg, "cannot be reached") || !strings.Contains(e.Details, "one of these is enough") {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// TestSTATUSStrictEnds: no policy keeps the kubelet from starting pods for good, and what wasn't
// noted can't end.
func TestSTATUSStrictEnds(t *testing.T) {
	t.Parallel()
	n := newNode(t, answer(http.StatusUnauthorized, ""))
	strict := n.add(`{"status_policy": "strict"}`)
	n.call("STATUS", strict).mustFail(t, types.ErrPluginNotAvailable)
	if age, found, err := (mark{filepath.Join(n.runDir, pluginName+".asked")}).age(time.Now()); !found || err != nil || age > time.Minute {
		t.Errorf("it is noted %v ago: %v, %v", age, found, err)
	}
	n.call("STATUS", strict).mustFail(t, types.ErrPluginNotAvailable)
	n.mark(pluginName+".asked", unreadyFor)
	n.mustPass("STATUS", strict)

	n = newNode(t, answer(http.StatusUnauthorized, ""))
	n.mustPass("STATUS", n.add(`{"status_policy": "strict", "cni_agent_run_dir": "`+filepath.Join(n.runDir, "missing")+`", "kubeconfig": "`+n.kubeconfig()+`"}`))
}

func TestSTATUSAsksTheAgentFirst(t *testing.T) {
	t.Parallel()
	n := newNode(t, answer(http.StatusNotFound, ""))
	a := agentOf(t)
	a.become(podsource.AgentStatus{Ready: true})
	n.serve(a)
	n.mustPass("STATUS", n.add(`{"status_policy": "strict"}`))
	if n.calls.Load() > 0 {
		t.Error("the API server was asked")
	}
	if _, err := os.Stat(filepath.Join(n.runDir, pluginName+".ready")); err != nil {
		t.Error(err)
	}

	a.become(podsource.AgentStatus{Reason: "the cache is not filled"})
	n.ready(time.Hour)
	n.mustPass("STATUS", n.add(`{"status_policy": "strict"}`))
	if n.calls.Load() != 1 {
		t.Errorf("the API server was asked %d times", n.calls.Load())
	}

	n.ready(time.Minute)
	n.server.Close()
	e := n.call("STATUS", n.add(`{"status_policy": "strict"}`)).mustFail(t, types.ErrPluginNotAvailable)
	if !strings.Contains(e.Msg, "the cache is not filled") {
		t.Errorf("got %+v", e)
	}
}

// A runtime asks every five seconds, on every node: the API server hears of it less often.
func TestSTATUSSparesTheAPIServer(t *testing.T) {
	t.Parallel()
	n := newNode(t, answer(http.StatusNotFound, ""))
	n.mustPass("STATUS", n.add())
	if _, noted, err := (mark{filepath.Join(n.runDir, pluginName+".ready")}).age(time.Now()); !noted || err != nil {
		t.Errorf("it isn't noted: %v", err)
	}
	for range 4 {
		n.ready(0) // however long ago that was on a busy machine
		n.mustPass("STATUS", n.add())
	}
	if n.calls.Load() != 1 {
		t.Errorf("asked %d times", n.calls.Load())
	}
}

// TestSTATUSAsksInTheNamespaceOfTheAgent: the options name it where the configuration does not.
func TestSTATUSAsksInTheNamespaceOfTheAgent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ option, setting, want string }{
		{"", "", "default"}, {"linkmesh", "", "linkmesh"}, {"linkmesh", "other", "other"},
	} {
		var asked string
		n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.Path
			w.WriteHeader(http.StatusNotFound)
		})
		o := options()
		o.Mesh.Policy.AgentNamespace = test.option
		got := n.runAs(t.Context(), o, "STATUS", n.add(`{"pod_namespace": "`+test.setting+`"}`))
		if got.code != 0 || !strings.HasPrefix(asked, "/api/v1/namespaces/"+test.want+"/pods/") {
			t.Errorf("%+v: asked %s, %+v", test, asked, got)
		}
	}
}

// A run directory that isn't there, or can't be written to, is no reason not to be ready.
func TestSTATUSWithoutARunDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t, answer(http.StatusNotFound, ""))
	n.mustPass("STATUS", n.add(`{"cni_agent_run_dir": "`+filepath.Join(n.runDir, "missing")+`", "kubeconfig": "`+n.kubeconfig()+`"}`))
}

func TestSTATUSRefusesAWrongConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.call("STATUS", n.add(`{"status_policy": "sometimes"}`)).mustFail(t, types.ErrInvalidNetworkConfig)
}
