// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
)

// withAmbient ends the name of a case in which the plugin asks the agent of ambient mode first.
const withAmbient = ", ambient mode"

// besideAmbient serves the socket of an agent of ambient mode that captures no pod.
func besideAmbient(b *testing.B, n *node) *node {
	b.Helper()
	server, err := event.Listen(b.Context(), filepath.Join(n.runDir, "pluginevent.sock"), event.Options{
		Enroller: capturesNone{}, Observe: func(o event.Outcome) {
			if o.Err != nil {
				b.Error(o.Err)
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- server.Serve(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return n
}

// capturesNone is an agent that captures no pod.
type capturesNone struct{}

// Enrol implements [event.Enroller].
func (capturesNone) Enrol(_ context.Context, _ event.Pod, namespace *os.File) (interception.Decision, error) {
	return interception.Decision{Reason: "not-selected"}, namespace.Close()
}
