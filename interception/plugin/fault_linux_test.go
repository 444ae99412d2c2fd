// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	meshnft "github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

// blame is what a fault is about, which decides whom it meets.
type blame int

const (
	harmless blame = iota // the pod is captured all the same
	sources               // no source knows the pod: the fail policy decides
	target                // the pod is known, and cannot be captured: if it is in the mesh, it never starts
)

// fault is something that goes wrong on a node.
type fault struct {
	name   string
	server http.HandlerFunc // in the API server's place, which would answer with the pod
	change func(n *node, args *skel.CmdArgs)

	blame    blame
	code     uint   // of an ADD that fails
	message  string // part of its msg
	remedy   string // part of its details
	log      string // part of the log of an ADD of a pod in the mesh
	notReady bool   // says STATUS
}

// setting changes the configuration.
func setting(text string) func(*node, *skel.CmdArgs) {
	return func(n *node, args *skel.CmdArgs) { args.StdinData = merge(n.t, args.StdinData, text) }
}

// faults are all that has been thought of. Those of the API server come without an agent, those of
// the agent with an API server.
func faults() []fault {
	return slices.Concat(serverFaults(), agentFaults(), targetFaults())
}

func serverFaults() []fault {
	return []fault{
		{
			name: "no kubeconfig", change: func(n *node, _ *skel.CmdArgs) { _ = os.Remove(n.kubeconfig()) }, notReady: true,
			blame: sources, code: codeKubeconfigMissing, remedy: "see whether its pod runs on this node",
			message: "agent.sock): connect: no such file or directory; kubeconfig cannot be used: open ",
		},
		{
			name: "damaged kubeconfig", change: func(n *node, _ *skel.CmdArgs) {
				_ = os.WriteFile(n.kubeconfig(), []byte("users: "+token+"\n\tuser:"), 0o600)
			}, notReady: true,
			blame: sources, code: codeKubeconfig, message: "line 2: it is indented with a tab", remedy: "let it write the file anew",
		},
		{
			name: "connection refused", change: func(n *node, _ *skel.CmdArgs) { n.server.Close() }, notReady: true,
			blame: sources, code: codeUnreachable, message: "API server cannot be reached (https://127.0.0.1:", remedy: "can be reached from this node",
		},
		{
			name: "certificate of somebody else", change: func(n *node, _ *skel.CmdArgs) {
				n.writeKubeconfig(strings.Replace(n.server.URL, "127.0.0.1", "localhost", 1), token)
			}, notReady: true, blame: sources, code: codeUntrusted, message: "not localhost", remedy: "the node's clock",
		},
		{
			name: "401", change: func(n *node, _ *skel.CmdArgs) { n.writeKubeconfig(n.server.URL, "expired") }, notReady: true,
			blame: sources, code: codeUnauthorized, message: "API server does not accept the credential (https://127.0.0.1:", remedy: "renews the token",
		},
		{
			name: "403", server: answer(http.StatusForbidden, ""), notReady: true,
			blame: sources, code: codeForbidden, message: "status 403", remedy: "a role with the verb get",
		},
		{
			name: "404", server: answer(http.StatusNotFound, ""),
			blame: sources, code: codeNotFound, message: "status 404", remedy: "if the pod was deleted",
		},
		{
			name: "500", server: answer(http.StatusInternalServerError, ""), notReady: true,
			blame: sources, code: codeServer, message: "status 500", remedy: "check the API server's health",
		},
		{
			name: "hang", server: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, notReady: true,
			change: setting(`{"timeout": "1s"}`), blame: sources, code: codeTimeout, message: "1s", remedy: "check the API server's health",
		},
		{
			name: "slow drip", server: drip, notReady: true,
			change: setting(`{"timeout": "1s"}`), blame: sources, code: codeTimeout, message: "1s", remedy: "check the API server's health",
		},
		{
			name: "garbage", server: answer(http.StatusOK, "<html>"), notReady: true,
			blame: sources, code: codeAnswer, message: "it is not JSON", remedy: "is an API server",
		},
		{
			name: "no pod", server: answer(http.StatusOK, `{"kind": "Status", "apiVersion": "v1"}`), notReady: true,
			blame: sources, code: codeNotPod, message: `it is of kind "Status"`, remedy: "is an API server",
		},
		{
			name: "huge answer", server: answer(http.StatusOK, strings.Repeat(" ", 9<<20)), notReady: true,
			blame: sources, code: codeTooLarge, message: "more than 8388608 bytes", remedy: "is an API server",
		},
		{
			name:   "wrong UID",
			change: func(_ *node, args *skel.CmdArgs) { args.Args = strings.Replace(args.Args, uid, "another", 1) },
			blame:  sources, code: codeStalePod, message: `with UID "` + uid + `", and not "another"`, remedy: "if the pod was deleted",
		},
	}
}

// drip sends an answer that never ends, until the client stops reading it.
func drip(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, " "); err != nil || flush.Flush() != nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
}

func agentFaults() []fault {
	older := "HTTP/1.1 404 Not Found\r\nContent-Length: 34\r\n\r\n" + `{"error":{"reason":"UnknownPath"}}`
	newer := "HTTP/1.1 404 Not Found\r\nContent-Length: 59\r\n\r\n" + `{"error":{"reason":"UnsupportedVersion","versions":["v9"]}}`
	return []fault{
		{name: "no agent", log: `"level":"DEBUG","msg":"source does not know the pod"`},
		{name: "agent down", change: agentDown, log: "connection refused"},
		{name: "agent hanging", change: hanging, log: "did not answer in time"},
		{name: "agent speaks garbage", change: speaking("SSH-2.0-OpenSSH\r\n"), log: "malformed HTTP"},
		{name: "agent older", change: speaking(older), log: "speaks another version"},
		{name: "agent newer", change: speaking(newer), log: "v9"},
		{
			name: "agent knows no such pod", log: "knows no such pod",
			change: func(n *node, _ *skel.CmdArgs) { n.serve(&agent{err: podsource.ErrNotFound}) },
		},
		{
			name: "agent lags behind", log: "knows another pod of that name",
			change: func(n *node, _ *skel.CmdArgs) { n.serve(agentOf(n.t, uid, "former")) },
		},
		{
			name: "agent fails", log: "no cache",
			change: func(n *node, _ *skel.CmdArgs) { n.serve(&agent{err: errors.New("no cache")}) },
		},
		{
			name: "agent hanging, no kubeconfig", notReady: true, blame: sources, code: codeKubeconfigMissing, message: "did not answer in time",
			change: func(n *node, args *skel.CmdArgs) {
				_ = os.Remove(n.kubeconfig())
				hanging(n, args)
			},
		},
	}
}

// hanging has an agent that never answers, and a plugin that soon gives it up. The API server has
// all the time.
func hanging(n *node, args *skel.CmdArgs) {
	speaking("")(n, args)
	const short = 100 * time.Millisecond
	n.limits.Agent, n.limits.StatusAgent, n.limits.Tell = short, short, short
}

// agentDown leaves a socket that no program listens on.
func agentDown(n *node, _ *skel.CmdArgs) {
	listener, err := agentserver.Listen(n.t.Context(), n.runDir)
	if err != nil {
		n.t.Fatal(err)
	}
	_ = listener.Close()
}

// speaking has an agent that answers everything with a text, and hangs for want of one.
func speaking(answer string) func(*node, *skel.CmdArgs) {
	return func(n *node, _ *skel.CmdArgs) {
		listener, err := net.Listen("unix", filepath.Join(n.runDir, podsource.AgentSocket))
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer connection.Close()
					_, _ = connection.Read(make([]byte, 1))
					_, _ = io.WriteString(connection, answer)
					if answer == "" {
						_, _ = io.Copy(io.Discard, connection)
					}
				}()
			}
		}()
	}
}

func targetFaults() []fault {
	return []fault{
		{
			name: "no netns", change: func(n *node, args *skel.CmdArgs) { args.Netns = filepath.Join(n.runDir, "gone") },
			blame: target, code: codeNetnsMissing, message: "open the network namespace of pod shop/web-0: ", remedy: "if the pod was deleted",
		},
		{
			name: "netns that is a file", change: func(n *node, args *skel.CmdArgs) { args.Netns = n.kubeconfig() },
			blame: target, code: codeNotNetns, message: "not a network namespace", remedy: "CNI_NETNS",
		},
		{
			name: "netns of the host", change: func(_ *node, args *skel.CmdArgs) { args.Netns = "/proc/1/ns/net" },
			blame: target, code: codeHostNetns, message: "network namespace is the host's", remedy: "nothing was changed",
		},
		{
			name: "host unknown", change: setting(`{"proc_root": "/nowhere"}`),
			blame: target, code: codeNetns, message: "cannot establish which network namespace is the host's", remedy: "set proc_root",
		},
		{
			name: "rules of iptables, which this build has not", change: setting(`{"dataplane": "iptables"}`),
			blame: target, code: codeUnsupported, message: "has no iptables", remedy: "bin/istio-cni-iptables",
		},
		{name: "read-only disk", change: onDisk(syscall.MS_RDONLY), log: "could not be recorded"},
		{name: "full disk", change: onDisk(0), log: "could not be recorded"},
	}
}

// onDisk has the run directory on a disk that takes nothing more. The kubeconfig is elsewhere.
func onDisk(flags uintptr) func(*node, *skel.CmdArgs) {
	return func(n *node, args *skel.CmdArgs) {
		disk := filepath.Join(n.runDir, "disk")
		if err := os.Mkdir(disk, 0o700); err != nil {
			n.t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", disk, "tmpfs", flags, "size=4k,nr_inodes=2,mode=0700"); err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() {
			if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
				n.t.Error(err)
			}
		})
		if flags == 0 {
			if err := os.WriteFile(filepath.Join(disk, "full"), make([]byte, 4096), 0o600); err != nil {
				n.t.Fatal(err)
			}
		}
		setting(`{"cni_agent_run_dir": "`+disk+`", "kubeconfig": "`+n.kubeconfig()+`"}`)(n, args)
	}
}

// passenger is a pod that a fault meets.
type passenger struct {
	name  string
	edits []string // of the pod in the mesh, as its sources know it
	args  string   // CNI_ARGS, unless they are the usual ones
	conf  string
	// outside means that something at hand shows that it is not in the mesh: no fault is any of its
	// business.
	outside bool
}

func passengers() []passenger {
	return []passenger{
		{name: "in the mesh", conf: "{}"},
		{name: "not injected", edits: []string{`"name": "istio-proxy"`, `"name": "proxy"`}, conf: "{}"},
		{name: "not injected, says the runtime", outside: true, conf: `{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b"}}}`},
		{name: "in an excluded namespace", outside: true, args: "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=dns", conf: "{}"},
		{name: "the agent's own", outside: true, args: "K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=istio-cni-node-x7k2p", conf: "{}"},
	}
}

// TestFaults meets each kind of pod with each fault, under each fail policy. What hangs does so to
// the end of the test: a case that waited for it would never end.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults() {
		for _, p := range passengers() {
			for _, policy := range []string{pluginconf.FailClosed, pluginconf.FailOpen} {
				t.Run(f.name+"/"+p.name+"/"+policy, func(t *testing.T) {
					t.Parallel()
					n, args := f.befall(t, p)
					args.StdinData = merge(t, args.StdinData, `{"fail_policy": {"default": "`+policy+`"}}`)
					o := n.run(args)
					captured := p.edits == nil && !p.outside
					switch {
					case p.outside, f.blame == harmless, f.blame == target && !captured, f.blame == sources && policy == pluginconf.FailOpen:
						o.mustSucceed(t)
						captured = captured && f.blame == harmless
					default:
						f.mustShow(t, o)
						captured = false
					}
					if captured {
						n.mustLog(o, f.log)
					}
					if p.outside && n.calls.Load() > 0 {
						t.Errorf("the API server was asked %d times", n.calls.Load())
					}
					n.mustHold(captured)
				})
			}
		}
	}
}

// befall makes a node on which the fault is there, and an ADD of the pod.
func (f fault) befall(t *testing.T, p passenger) (*node, *skel.CmdArgs) {
	t.Helper()
	server := pod(t, p.edits...)
	if f.server != nil {
		server = f.server
	}
	n := newNode(t, server)
	args := n.checked(p.conf)
	if p.args != "" {
		args.Args = p.args
	}
	if f.change != nil {
		f.change(n, args)
	}
	return n, args
}

func (f fault) mustShow(t *testing.T, o outcome) {
	t.Helper()
	e := o.mustFail(t, f.code)
	if !strings.Contains(e.Msg, f.message) {
		t.Errorf("got message %q, want %q", e.Msg, f.message)
	}
	if !strings.Contains(e.Details, f.remedy) {
		t.Errorf("got details %q, want %q", e.Details, f.remedy)
	}
}

// mustHold wants the whole plan in the pod's namespace, or nothing.
func (n *node) mustHold(captured bool) {
	n.t.Helper()
	if !captured {
		if tables := n.tables(); tables != nil {
			n.t.Errorf("rules were left: %v", tables)
		}
		return
	}
	for _, drift := range interception.Diff(n.planOf(n.netns.Path(), agentOf(n.t).pod), n.observe(n.netns.Path())) {
		n.t.Error(drift)
	}
}

// planOf is the plan that a pod must have.
func (n *node) planOf(path string, pod interception.Pod) *interception.Plan {
	n.t.Helper()
	o := options()
	redirect, _, err := o.Mesh.Parse(pod)
	if err != nil {
		n.t.Fatal(err)
	}
	plan, err := (&call{env: &env{Options: o}}).planIn(n.open(path), podsource.Ref{}, redirect)
	if err != nil {
		n.t.Fatal(err)
	}
	return plan
}

// open opens a network namespace, until the test ends.
func (n *node) open(path string) *interception.Netns {
	n.t.Helper()
	ns, err := interception.OpenNetns(path, interception.NetnsOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// observe reads the plugin's rules in a network namespace.
func (n *node) observe(path string) interception.State {
	n.t.Helper()
	dataplane, err := meshnft.New(meshnft.Options{})
	if err != nil {
		n.t.Fatal(err)
	}
	state, err := dataplane.Observe(n.t.Context(), n.open(path), pluginName)
	if err != nil {
		n.t.Fatal(err)
	}
	return state
}

// forKubelet are the codes of what a node agent in the pods' network only mends when the kubelet
// mounts it another token, or starts it.
func forKubelet() []uint {
	return []uint{codeKubeconfigMissing, codeKubeconfig, codeUntrusted, codeUnauthorized, codeForbidden}
}

// TestSTATUSOfFaults asks under each policy whether the plugin is ready.
func TestSTATUSOfFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults() {
		for _, policy := range []struct {
			name    string
			marked  bool
			reports bool
		}{
			{"strict", false, true},
			{"strict", true, true},
			{"after-first-ready", false, false},
			{"after-first-ready", true, !slices.Contains(forKubelet(), f.code)},
			{"off", true, false},
		} {
			name := f.name + "/" + policy.name
			if policy.marked {
				name += ", ready before"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n, args := f.befall(t, passengers()[0])
				args.StdinData = merge(t, args.StdinData, `{"cniVersion": "1.1.0", "status_policy": "`+policy.name+`"}`)
				if policy.marked {
					n.ready(time.Minute)
				}
				o := n.call("STATUS", args)
				if f.notReady && policy.reports {
					o.mustFail(t, types.ErrPluginNotAvailable)
				} else if o.code != 0 || o.stdout != "" {
					t.Errorf("got %+v", o)
				}
				n.mustHold(false)
			})
		}
	}
}
