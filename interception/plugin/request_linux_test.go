// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"

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

// TestBeforeIsNotAskedAboutNames: what a name decides needs no hook.
func TestBeforeIsNotAskedAboutNames(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	o := options()
	o.Before = func(context.Context, Request) (sidecar.Decision, bool, error) {
		t.Error("it was asked")
		return sidecar.Decision{}, false, nil
	}
	args := n.add()
	args.Args = strings.Replace(podArgs, "=shop", "=kube-system", 1)
	n.runAs(t.Context(), o, "ADD", args).mustSucceed(t)
}
