// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

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
