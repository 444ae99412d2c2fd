// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// TestBefore has the hook decide, pass and fail, in ADD and in a CHECK without a record.
func TestBefore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		answer  func(Request) (sidecar.Decision, bool, error)
		reason  string
		code    uint
		asks    bool // the API server
		message string
	}{
		{
			name: "decides", reason: "elsewhere",
			answer: func(Request) (sidecar.Decision, bool, error) {
				return sidecar.Decision{Reason: "elsewhere", Detail: "in the ambient mesh"}, true, nil
			},
		},
		{
			name: "passes", asks: true, reason: "in-mesh",
			answer: func(Request) (sidecar.Decision, bool, error) { return sidecar.Decision{}, false, nil },
		},
		{
			name: "fails", code: 200, message: "tell the agent: it is away",
			answer: func(Request) (sidecar.Decision, bool, error) {
				return sidecar.Decision{}, false, &Error{Code: 200, Step: "tell the agent", Err: errors.New("it is away"), Remedy: "start it"}
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			var asked []Request
			o := options()
			o.Ambient = true
			o.Before = func(_ context.Context, r Request) (sidecar.Decision, bool, error) {
				asked = append(asked, r)
				return test.answer(r)
			}
			args := n.checked(`{"ambient_enabled": true}`)
			came := n.runAs(t.Context(), o, "ADD", args)
			if test.code != 0 {
				if e := came.mustFail(t, test.code); e.Msg != test.message {
					t.Errorf("got %+v", e)
				}
			} else {
				came.mustSucceed(t)
				if r := n.keptResult(); string(r.Reason) != test.reason || r.Captured != test.asks {
					t.Errorf("got result %+v", r)
				}
			}
			if got := n.calls.Load() > 0; got != test.asks {
				t.Errorf("the API server was asked: %v", got)
			}
			r := asked[0]
			if r.Command != "ADD" || r.Pod.String() != "shop/web-0" || r.Netns != n.netns.Path() || r.Attachment != web || !r.Config.AmbientEnabled {
				t.Errorf("asked %+v", r)
			}
			if test.asks {
				return // CHECK goes by the record
			}
			if n.runAs(t.Context(), o, "CHECK", args); len(asked) != 2 || asked[1].Command != "CHECK" || asked[1].Attachment != web {
				t.Errorf("CHECK asked %+v", asked[1:])
			}
		})
	}
}

// TestRequestOpensTheNamespace lets the hook open the pod's namespace, and never the host's. The
// plugin keeps its own codes for that.
func TestRequestOpensTheNamespace(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	var opened []interception.NetnsID
	o := options()
	o.Before = func(_ context.Context, r Request) (sidecar.Decision, bool, error) {
		ns, err := r.OpenNetns()
		if err != nil {
			return sidecar.Decision{}, false, err
		}
		opened = append(opened, ns.ID())
		return sidecar.Decision{Reason: "elsewhere"}, true, ns.Close()
	}
	n.runAs(t.Context(), o, "ADD", n.add()).mustSucceed(t)
	for path, code := range map[string]uint{
		"/proc/1/ns/net": codeHostNetns, n.runDir: codeNotNetns, filepath.Join(n.runDir, "missing"): codeNetnsMissing,
	} {
		args := n.add()
		args.Netns = path
		n.runAs(t.Context(), o, "ADD", args).mustFail(t, code)
	}
	if len(opened) != 1 || opened[0] == (interception.NetnsID{}) {
		t.Errorf("opened %v", opened)
	}
}

// TestRequestAddresses reads the addresses of prevResult in each version's words.
func TestRequestAddresses(t *testing.T) {
	t.Parallel()
	both := []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")}
	of := func(conf pluginconf.Config) ([]netip.Addr, error) { return Request{Config: conf}.Addresses() }
	for _, v := range cniversion.All.SupportedVersions() {
		want := both
		if !hasIPs(v) {
			want = both[:1]
		}
		// The configuration's version says nothing about the result's.
		if got, err := of(pluginconf.Config{CNIVersion: "0.2.0", PrevResult: []byte(resultOf(v))}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v", v, got, err)
		}
	}
	for text, want := range map[string][]netip.Addr{
		"": nil, "null": nil, "{}": nil, `{"ips": []}`: nil,
		`{"ips": [{"address": "fd00::3/64"}]}`: both[1:],
		`{"interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "/ns"}],
			"ips": [{"interface": 0, "address": "10.9.9.9/24"}, {"interface": 1, "address": "10.1.2.3/24"}, {"interface": 7, "address": "fd00::3/64"}]}`: both,
	} {
		if got, err := of(pluginconf.Config{CNIVersion: "1.0.0", PrevResult: []byte(text)}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	var failure *Error
	if _, err := of(pluginconf.Config{CNIVersion: "1.0.0", PrevResult: []byte(`{"ips": 1}`)}); !errors.As(err, &failure) || failure.Code != types.ErrDecodingFailure {
		t.Errorf("got %v", err)
	}
}

// TestHookLogs finds what the hook logs in the plugin's log, with the pod.
func TestHookLogs(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	o := options()
	o.Before = func(_ context.Context, r Request) (sidecar.Decision, bool, error) {
		r.Log.Warn("the agent is away")
		return sidecar.Decision{Reason: "elsewhere"}, true, nil
	}
	came := n.runAs(t.Context(), o, "ADD", n.add())
	line, _, _ := strings.Cut(came.stderr, "\n")
	if !strings.Contains(line, "the agent is away") || !strings.Contains(line, `"pod":"shop/web-0"`) {
		t.Errorf("the log is %s", came.stderr)
	}
}

// notAsked is a hook that must not be called.
func notAsked(t *testing.T) func(context.Context, Request) (sidecar.Decision, bool, error) {
	t.Helper()
	return func(context.Context, Request) (sidecar.Decision, bool, error) {
		t.Error("the hook was asked")
		return sidecar.Decision{}, false, nil
	}
}

// TestBeforeIsNotAskedAboutNames: what a name decides needs no hook.
func TestBeforeIsNotAskedAboutNames(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	o := options()
	o.Before = notAsked(t)
	args := n.add()
	args.Args = strings.Replace(podArgs, "=shop", "=kube-system", 1)
	n.runAs(t.Context(), o, "ADD", args).mustSucceed(t)
}

// TestBeforeIsHeldToItsContract has hooks answer what would leave a pod alone without a reason, or
// fail in ways that do not tell the operator what to do.
func TestBeforeIsHeldToItsContract(t *testing.T) {
	t.Parallel()
	answer := func(d sidecar.Decision, decided bool, err error) func(context.Context) (sidecar.Decision, bool, error) {
		return func(context.Context) (sidecar.Decision, bool, error) { return d, decided, err }
	}
	away := errors.New("the agent is away")
	for name, test := range map[string]struct {
		before  func(context.Context) (sidecar.Decision, bool, error)
		code    uint
		message string
		remedy  string
	}{
		"captures": {
			answer(sidecar.Decision{Capture: true, Reason: sidecar.ReasonInMesh}, true, nil), types.ErrInternal,
			"decide about pod shop/web-0: it decided to capture the pod", "please report it",
		},
		"no reason": {answer(sidecar.Decision{}, true, nil), types.ErrInternal, "gave no reason", "please report it"},
		"a plain error": {
			answer(sidecar.Decision{}, false, away), types.ErrInternal, "decide about pod shop/web-0: the agent is away", "see the node agent's log",
		},
		"a code of the plugin": {
			answer(sidecar.Decision{}, false, &Error{Code: codeTimeout, Step: "ask", Err: away, Remedy: "start it"}), types.ErrInternal,
			"ask: the agent is away", "start it",
		},
		"no code": {answer(sidecar.Decision{}, false, &Error{Step: "ask", Err: away}), types.ErrInternal, "ask: the agent is away", "tries again"},
		"a code of the specification": {
			answer(sidecar.Decision{}, false, &Error{Code: types.ErrTryAgainLater, Step: "ask", Err: away}), types.ErrTryAgainLater, "ask: ", "tries again",
		},
		"waits for ever": {
			func(ctx context.Context) (sidecar.Decision, bool, error) {
				<-ctx.Done()
				return sidecar.Decision{}, false, context.Cause(ctx)
			}, types.ErrInternal, "decide about pod shop/web-0: the timeout of 1ms has expired", "tries again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			o := options()
			o.Before = func(ctx context.Context, _ Request) (sidecar.Decision, bool, error) { return test.before(ctx) }
			conf := "{}"
			if name == "waits for ever" {
				conf = `{"timeout": "1ms"}`
			}
			e := n.runAs(t.Context(), o, "ADD", n.add(conf)).mustFail(t, test.code)
			if !strings.Contains(e.Msg, test.message) || !strings.Contains(e.Details, test.remedy) {
				t.Errorf("got %+v", e.Error)
			}
		})
	}
}

// TestAmbientIsRefusedWhateverBeforeSays: a hook of another purpose says nothing about ambient
// pods.
func TestAmbientIsRefusedWhateverBeforeSays(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	o := options()
	o.Before = notAsked(t)
	n.runAs(t.Context(), o, "ADD", n.add(`{"ambient_enabled": true}`)).mustFail(t, types.ErrUnsupportedField)
	o.Ambient, o.Before = true, nil
	if err := o.Validate(); err == nil {
		t.Error("Ambient without Before is taken")
	}
}
