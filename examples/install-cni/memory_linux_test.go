// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/testing/testlog"
)

// TestMemoryIsGivenBackAfterRequests: plugins report, and memory is returned after each time, more
// often than at the start alone.
func TestMemoryIsGivenBackAfterRequests(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	trims, trimmed := atomic.Int64{}, testlog.New()
	n.trim = func() error {
		trims.Add(1)
		trimmed.Tell()
		return nil
	}
	p := n.startReady()
	plugin := podsource.Agent{RunDir: n.runDir}
	for name, work := range map[string]func() error{
		"result": func() error {
			return plugin.Report(t.Context(), []podsource.Result{{Command: "ADD", Namespace: "shop", Name: "web-0"}})
		},
		"log": func() error { return plugin.Log(t.Context(), []podsource.LogEntry{{Message: "x"}}) },
	} {
		for range 10 {
			before := trims.Load()
			if err := work(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !trimmed.Await(patience, func() bool { return trims.Load() > before }) {
				t.Fatalf("%s: no memory is given back\n%s", name, p.log)
			}
		}
	}
}
