// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/examples/install-cni/internal/ambientpart"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
)

// TestAmbientCommand has the command line of node-ambient where pods are captured in their own
// namespaces, and where the node's captures them: both have the socket for the proxy in the pods,
// which pods need that move from one mode to the other.
func TestAmbientCommand(t *testing.T) {
	t.Parallel()
	const proxy = "-proxy=/run/z/z.sock"
	for mode, way := range map[string]string{"in-pod": "", "node": "vxlan"} {
		n := newNode(t)
		n.env["AMBIENT_ENABLED"], n.env["NODE_NAME"], n.env["NODE_AMBIENT"], n.env["ZTUNNEL_UDS_ADDRESS"] = "true", "n", "/node-ambient", "/run/z/z.sock"
		n.env["AMBIENT_MODE"] = mode
		if way != "" {
			n.env["AMBIENT_WAY"] = way
		}
		a, err := newAmbientMode(n.environment(io.Discard), n.settings(), slog.New(slog.DiscardHandler), new(slog.LevelVar), ambientpart.Options{})
		if err != nil {
			t.Fatal(err)
		}
		line, err := a.command()
		if err != nil || !slices.Contains(line, proxy) {
			t.Fatalf("%s: the command is %q, %v, want %s", mode, line, err, proxy)
		}
		i := slices.IndexFunc(line, func(arg string) bool { return strings.HasPrefix(arg, "-settings=") })
		config, err := ambientconf.Parse(strings.TrimPrefix(line[i], "-settings="))
		if err != nil || config.OnNode() != (mode == "node") || config.Way != way {
			t.Errorf("%s: the settings are %+v, %v", mode, config, err)
		}
	}
}

// TestWithdrawWarning: nothing but a pod that is left, or an agent that cannot be asked, is a
// reason to restart pods.
func TestWithdrawWarning(t *testing.T) {
	t.Parallel()
	unfinished := &event.Error{Code: event.CodeUnfinished, Message: "the pods are out of the mesh, and their annotations do not say so yet"}
	for name, test := range map[string]struct {
		left    []event.PodState
		err     error
		want    string
		restart bool
	}{
		"a pod is left":         {[]event.PodState{servedPod()}, unfinished, "still in the mesh", true},
		"annotations are":       {nil, unfinished, "no pod is left", false},
		"the agent ends":        {nil, &event.Error{Code: event.CodeStopped, Message: "the agent does not run"}, "cannot take the pods out", true},
		"no agent can be asked": {nil, errors.New("connection refused"), "cannot take the pods out", true},
	} {
		got := withdrawWarning(test.left, test.err)
		if !strings.Contains(got, test.want) || strings.Contains(got, "restart") != test.restart {
			t.Errorf("%s: %q", name, got)
		}
	}
}
