// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
)

func TestADDCapturesAPodOfTheMesh(t *testing.T) {
	t.Parallel()
	for mode, answer := range map[string]http.HandlerFunc{"REDIRECT": pod(t), "TPROXY": pod(t, `"REDIRECT"`, `"TPROXY"`)} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, answer)
			for range 3 {
				o := n.run(n.add())
				o.mustSucceed(t)
				if o.stdout != `{"cniVersion":"1.0.0"}` {
					t.Errorf("got result %s", o.stdout)
				}
				if !strings.Contains(o.stderr, `"msg":"pod is captured"`) || !strings.Contains(o.stderr, `"pod":"shop/web-0"`) {
					t.Errorf("got log %s", o.stderr)
				}
				if tables := n.tables(); !slices.Equal(tables, []string{"istio-cni"}) {
					t.Errorf("got tables %v", tables)
				}
			}
		})
	}
}

func TestADDLeavesPodsAlone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, reason string
		answer       http.HandlerFunc
	}{
		{"without proxy", "no-proxy", pod(t, `"name": "istio-proxy"`, `"name": "proxy"`)},
		{"not injected", "not-injected", pod(t, `"sidecar.istio.io/status"`, `"status"`)},
		{"opted out", "opted-out", pod(t, `"app": "web"`, `"sidecar.istio.io/inject": "false"`)},
		{"with rules of its own", "rule-container", pod(t, `"name": "istio-validation"`, `"name": "istio-init"`)},
		{"gateway", "proxy-type", pod(t, `"sidecar", "--domain"`, `"router", "--domain"`)},
		{"without Envoy", "proxy-disabled", pod(t, `"PILOT_CERT_PROVIDER", "value": "istiod"`, `"DISABLE_ENVOY", "value": "true"`)},
		{"in the host's network", "host-network", pod(t, `"nodeName"`, `"hostNetwork": true, "nodeName"`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, test.answer)
			args := n.add()
			args.Netns = filepath.Join(n.runDir, "never-opened")
			o := n.run(args)
			o.mustSucceed(t)
			if !strings.Contains(o.stderr, `"reason":"`+test.reason+`"`) {
				t.Errorf("got log %s", o.stderr)
			}
			if tables := n.tables(); tables != nil {
				t.Errorf("got tables %v", tables)
			}
		})
	}
}

func TestADDAsksNobodyWhereTheNameIsEnough(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	if err := os.Remove(n.kubeconfig()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, args, reason string }{
		{"not Kubernetes", "", "not-kubernetes"},
		{"excluded namespace", "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=dns", "excluded-namespace"},
		{"own agent", "K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=istio-cni-node-x7k2p", "own-agent"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := n.add(`{"ambient_enabled": true}`)
			args.Args = test.args
			o := n.run(args)
			o.mustSucceed(t)
			if !strings.Contains(o.stderr, test.reason) {
				t.Errorf("got log %s", o.stderr)
			}
		})
	}
}

// TestADDFailures has what is wrong with the call itself; TestFaults has what is wrong with the
// node. Each has its own code, or shares one with similar failures, and text that names step, cause
// and remedy; none leaves a rule or shows the token.
func TestADDFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		answer  http.HandlerFunc
		change  func(n *node, args *skel.CmdArgs)
		code    uint
		message string // part of msg
		remedy  string // part of details
	}{
		{
			name: "invalid annotation", answer: pod(t, `includeInboundPorts": "*"`, `includeInboundPorts": "80,http"`), code: codePod,
			message: `read what pod shop/web-0 asks for: invalid annotation traffic.sidecar.istio.io/includeInboundPorts="80,http": `,
			remedy:  "correct the pod",
		},
		{
			name: "two invalid annotations", answer: pod(t, `includeInboundPorts": "*"`, `includeInboundPorts": "99999"`,
				`"REDIRECT"`, `"NONE"`), code: codePod,
			message: `invalid annotation sidecar.istio.io/interceptionMode="NONE": write REDIRECT or TPROXY`,
		},
		{
			name: "CNI_ARGS", change: func(_ *node, args *skel.CmdArgs) { args.Args = "K8S_POD_NAME" }, code: types.ErrInvalidEnvironmentVariables,
			message: "read CNI_ARGS: ", remedy: "the container runtime sets it",
		},
		{
			name: "name that is none", change: func(_ *node, args *skel.CmdArgs) { args.Args = "K8S_POD_NAME=a/b;K8S_POD_NAMESPACE=c" },
			code: types.ErrInvalidEnvironmentVariables, message: `name "a/b" has '/' at position 2`, remedy: "CNI_ARGS",
		},
		{
			name: "setting of another type", change: func(n *node, args *skel.CmdArgs) {
				args.StdinData = n.configuration(`{"native_nftables": "yes"}`)
			}, code: types.ErrInvalidNetworkConfig, message: "read configuration: native_nftables is a string, and should be a bool", remedy: "let the node agent",
		},
		{
			name: "setting that is no list", change: func(n *node, args *skel.CmdArgs) {
				args.StdinData = n.configuration(`{"exclude_namespaces": "kube-system"}`)
			}, code: types.ErrInvalidNetworkConfig, message: "exclude_namespaces is a string, and should be a list of strings", remedy: "let the node agent",
		},
		{
			name: "settings of other values", change: func(n *node, args *skel.CmdArgs) {
				args.StdinData = n.configuration(`{"dataplane": "ebpf", "plugin_log_level": "loud", "kubeconfig": "relative"}`)
			}, code: types.ErrInvalidNetworkConfig,
			message: "plugin_log_level is \"loud\", and should be debug, info, warn, error, fatal or none; " +
				"kubeconfig is \"relative\", and should be an absolute path; dataplane is \"ebpf\", and should be \"auto\", \"nftables\" or \"iptables\"",
		},
		{
			name: "settings about sources", change: func(n *node, args *skel.CmdArgs) {
				args.StdinData = n.configuration(`{"timeout": "soon", "fail_policy": {"default": "ajar", "open": ["a", "b"], "closed": ["b"]}}`)
			}, code: types.ErrInvalidNetworkConfig,
			message: "fail_policy.default is \"ajar\", and should be \"closed\" or \"open\"; " +
				"fail_policy has namespace \"b\" both in open and in closed: remove it from one; " +
				"timeout is \"soon\", and should be a time such as \"30s\"",
		},
		{
			name: "no time", change: func(n *node, args *skel.CmdArgs) { args.StdinData = n.configuration(`{"timeout": "0s"}`) },
			code: types.ErrInvalidNetworkConfig, message: `timeout is "0s"`,
		},
		{
			name: "annotations of another type", change: func(n *node, args *skel.CmdArgs) {
				args.StdinData = n.configuration(`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": "none"}}`)
			}, code: types.ErrInvalidNetworkConfig, message: "is a string, and should be an object",
		},
		{
			name: "configuration that is no JSON", change: func(_ *node, args *skel.CmdArgs) { args.StdinData = []byte("{") },
			code: types.ErrDecodingFailure, message: "read configuration: unexpected end of JSON input", remedy: "let the node agent",
		},
		{
			name: "prevResult", change: func(n *node, args *skel.CmdArgs) {
				args.StdinData = n.configuration(`{"prevResult": {"cniVersion": "1.0.0", "ips": "none"}}`)
			}, code: types.ErrDecodingFailure, message: "read prevResult: ", remedy: "the plugin before istio-cni",
		},
		{
			name: "ambient mode", change: func(n *node, args *skel.CmdArgs) { args.StdinData = n.configuration(`{"ambient_enabled": true}`) },
			code: types.ErrUnsupportedField, message: "ambient_enabled is true",
			remedy: "set ambient_enabled to false, or exclude the namespaces that have no sidecars with exclude_namespaces; " +
				"for ambient mode use another plugin",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.answer == nil {
				test.answer = pod(t)
			}
			n := newNode(t, test.answer)
			args := n.add()
			if test.change != nil {
				test.change(n, args)
			}
			e := n.run(args).mustFail(t, test.code)
			if !strings.Contains(e.Msg, test.message) {
				t.Errorf("got message %q, want %q", e.Msg, test.message)
			}
			if !strings.Contains(e.Details, test.remedy) {
				t.Errorf("got details %q, want %q", e.Details, test.remedy)
			}
			if tables := n.tables(); tables != nil {
				t.Errorf("rules were left: %v", tables)
			}
		})
	}
}

func TestADDReportsWhatTheDataplaneSays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err    error
		code   uint
		remedy string
	}{
		{errors.New("kernel said no"), codeApply, "none of the rules is in place"},
		{&interception.ApplyError{At: "outbound.proxy", Why: "proxy's own", Err: fs.ErrPermission}, codeApply, "CAP_NET_ADMIN"},
		{fmt.Errorf("nf_tables: %w", interception.ErrUnsupported), codeUnsupported, "nft_chain_nat"},
	} {
		n := newNode(t, pod(t))
		o := n.runWith(n.add(), func() (interception.Dataplane, error) { return failing{test.err}, nil })
		e := o.mustFail(t, test.code)
		if want := "write the rules of pod shop/web-0: " + test.err.Error(); e.Msg != want || !strings.Contains(e.Details, test.remedy) {
			t.Errorf("got %q and %q, want %q and %q", e.Msg, e.Details, want, test.remedy)
		}
		if e.CNIVersion != "1.0.0" {
			t.Errorf("the error is of version %q", e.CNIVersion)
		}
	}
}

func TestADDTurnsAPanicIntoAnError(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	o := n.runWith(n.add(), func() (interception.Dataplane, error) { panic("of the test") })
	e := o.mustFail(t, codePanic)
	if e.Msg != "ADD: panic: of the test" || !strings.Contains(e.Details, "add_linux_test.go") {
		t.Errorf("got %+v", e)
	}
}

func TestADDLogsSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t, `"REDIRECT"`, `"REDIRECT", "traffic.sidecar.istio.io/excludeInboundPort": "80"`))
	o := n.run(n.add())
	o.mustSucceed(t)
	if !strings.Contains(o.stderr, `"level":"WARN"`) || !strings.Contains(o.stderr, "excludeInboundPort=") {
		t.Errorf("got log %s", o.stderr)
	}
}

// TestADDReadsThePodBeforeTheNamespace has no network namespace: an error about the pod still comes
// first, and a warning about the pod is not lost.
func TestADDReadsThePodBeforeTheNamespace(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t, `"REDIRECT"`, `"NONE"`))
	args := n.add()
	args.Netns = filepath.Join(n.runDir, "missing")
	n.run(args).mustFail(t, codePod)

	n = newNode(t, pod(t, `"REDIRECT"`, `"REDIRECT", "traffic.sidecar.istio.io/excludeInboundPort": "80"`))
	args = n.add()
	args.Netns = filepath.Join(n.runDir, "missing")
	o := n.run(args)
	o.mustFail(t, codeNetnsMissing)
	if r := n.keptResult(); len(r.Warnings) != 1 || !strings.Contains(o.stderr, "excludeInboundPort=") {
		t.Errorf("got result %+v, log %s", r, o.stderr)
	}
}

func TestADDWarnsOfInitContainersWithoutNetwork(t *testing.T) {
	t.Parallel()
	const validation, proxy = `{"name": "istio-validation"`, `"name": "istio-proxy", "image"`
	const migrate = `{"name": "migrate", "image": "app"}`
	for name, test := range map[string]struct {
		edits  []string
		warned bool
	}{
		"none":                 {nil, false},
		"ahead of the proxy":   {[]string{validation, migrate + ", " + validation}, true},
		"with the proxy's ids": {[]string{validation, `{"name": "migrate", "securityContext": {"runAsUser": 1337}}, ` + validation}, false},
		"after a native sidecar": {[]string{
			validation, `{"name": "istio-proxy", "restartPolicy": "Always"}, ` + migrate + ", " + validation, proxy, `"name": "other", "image"`,
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t, test.edits...))
			o := n.run(n.add())
			o.mustSucceed(t)
			n.mustHold(true)
			const text = `spec.initContainers="migrate"`
			result := strings.Join(n.keptResult().Warnings, "\n")
			if strings.Contains(result, text) != test.warned || strings.Contains(o.stderr, "spec.initContainers") != test.warned {
				t.Errorf("got result %q, log %s", result, o.stderr)
			}
		})
	}
}

func TestLogLevel(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	for _, level := range []string{"error", "fatal", "none"} {
		o := n.run(n.add(`{"plugin_log_level": "` + level + `"}`))
		o.mustSucceed(t)
		if o.stderr != "" {
			t.Errorf("%s: got log %s", level, o.stderr)
		}
	}
}

func TestSettingsOfOurOwn(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	elsewhere := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.Rename(n.kubeconfig(), elsewhere); err != nil {
		t.Fatal(err)
	}
	o := n.run(n.add(`{"kubeconfig": "` + elsewhere + `", "dataplane": "nftables", "proc_root": "/proc", "agent_name": "agent"}`))
	o.mustSucceed(t)
	args := n.add(`{"agent_name": "agent"}`)
	args.Args = "K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=agent-x7k2p"
	n.run(args).mustSucceed(t)
	if calls := n.calls.Load(); calls != 1 {
		t.Errorf("the API server was asked %d times, want once", calls)
	}
}

func TestTextOfAPodIsBounded(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t, `includeInboundPorts": "*"`, `includeInboundPorts": "`+strings.Repeat("x", 100_000)+`"`))
	e := n.run(n.add()).mustFail(t, codePod)
	if len(e.Msg) > maxText+100 || !strings.Contains(e.Msg, "more bytes)") {
		t.Errorf("got %d bytes", len(e.Msg))
	}
}
