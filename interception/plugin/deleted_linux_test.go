// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/sidecar"
)

// TestDeleted tells the hook of each DEL, also of a repeated one, and succeeds whatever the hook
// does. Without an end of its context, the slow hook would never return.
func TestDeleted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hook   func(context.Context) error
		logged string
	}{
		"it succeeds": {hook: func(context.Context) error { return nil }},
		"it fails":    {func(context.Context) error { return errors.New("the agent is away") }, "the agent is away"},
		"it panics":   {func(context.Context) error { panic("nobody expects this") }, "panic: nobody expects this"},
		"it is slow": {func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			n.limits.Deleted = 50 * time.Millisecond
			var told []Request
			o := options()
			o.Ambient = true
			o.Before = func(context.Context, Request) (sidecar.Decision, bool, error) { return sidecar.Decision{}, false, nil }
			o.Deleted = func(ctx context.Context, r Request) error {
				if all := n.attachments(); len(all) > 0 {
					t.Errorf("the hook is told while there are the records %v", all)
				}
				told = append(told, r)
				return test.hook(ctx)
			}
			args := n.add(`{"ambient_enabled": true}`)
			n.runAs(t.Context(), o, "ADD", args).mustSucceed(t)
			for range 2 {
				came := n.runAs(t.Context(), o, "DEL", args)
				if came.code != 0 || came.stdout != "" || !strings.Contains(came.stderr, test.logged) {
					t.Errorf("got %+v, want success, and %q in the log", came, test.logged)
				}
				if was := strings.Contains(came.stderr, "the end of a container was not told"); was != (test.logged != "") {
					t.Errorf("the log is %s", came.stderr)
				}
			}
			if len(told) != 2 {
				t.Fatalf("the hook was told of %d requests", len(told))
			}
			for _, r := range told {
				if r.Command != "DEL" || r.Pod.String() != "shop/web-0" || r.Pod.UID != uid || r.Attachment != web || r.Netns != n.netns.Path() ||
					!r.Config.AmbientEnabled || r.Log == nil {
					t.Errorf("the hook was told of %+v", r)
				}
			}
		})
	}
}

// TestUsualLimitOfDeleted is what a pod's end waits for at most.
func TestUsualLimitOfDeleted(t *testing.T) {
	t.Parallel()
	if limit := usualLimits().Deleted; limit <= 0 || limit > time.Second {
		t.Errorf("DEL waits %s for the hook", limit)
	}
}

// TestWrongValueAtDEL has a configuration that was mistyped while the pod ran: its record goes, and
// the hook is told.
func TestWrongValueAtDEL(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.exec("ADD", n.add()).mustSucceed(t)
	if all := n.attachments(); len(all) != 1 {
		t.Fatalf("after ADD there are the records %v", all)
	}
	o, told := options(), 0
	o.Deleted = func(context.Context, Request) error {
		told++
		return nil
	}
	came := n.runAs(t.Context(), o, "DEL", n.add(`{"timeout": 30}`))
	if all := n.attachments(); came.code != 0 || len(all) > 0 || told != 1 || !strings.Contains(came.stderr, "timeout is a number") {
		t.Errorf("got %+v, the records %v, and the hook was told %d times", came, all, told)
	}
}

// TestDeletedIsNotTold of pods that are certainly not the mesh's, and of nothing that cannot be
// read.
func TestDeletedIsNotTold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args, configuration string
		told                bool
	}{
		"a pod":                 {args: podArgs, told: true},
		"an excluded namespace": {args: "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=dns"},
		"the agent's own":       {args: "K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=istio-cni-node-x7k2p"},
		"no pod":                {args: "IgnoreUnknown=1"},
		"damaged arguments":     {args: "K8S_POD_NAME"},
		"damaged configuration": {args: podArgs, configuration: `{"cniVersion"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			var told []Request
			o := options()
			o.Deleted = func(_ context.Context, r Request) error {
				told = append(told, r)
				return nil
			}
			args := n.add()
			args.Args = test.args
			if test.configuration != "" {
				args.StdinData = []byte(test.configuration)
			}
			if came := n.runAs(t.Context(), o, "DEL", args); came.code != 0 || came.stdout != "" || len(told) > 0 != test.told {
				t.Errorf("the hook was told of %v: %+v", told, came)
			}
		})
	}
}
