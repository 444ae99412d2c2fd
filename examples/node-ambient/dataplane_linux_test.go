// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestWithoutIPTables reads the rules of another program where iptables is not installed, twice:
// the agents do without it, and it is logged once.
func TestWithoutIPTables(t *testing.T) {
	t.Parallel()
	ns := sandboxtest.NewPod(t)
	sandboxtest.Run(t, ns.File(), "", "iptables-nft", "-A", "FORWARD", "-j", "ACCEPT")
	missing := map[string][]string{"iptables-nft-save": {"/missing/iptables-nft-save"}}
	dataplane, err := iptables.New(iptables.Options{Foreign: true, Programs: missing})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := &iptablesReader{Dataplane: dataplane, log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		state, err := r.Observe(t.Context(), ns.Netns, ambientconf.Owner)
		if !errors.Is(err, interception.ErrUnsupported) || len(state.Foreign)+len(state.Objects) > 0 {
			t.Errorf("observed %+v, %v, want nothing, and ErrUnsupported", state, err)
		}
	}
	if said := log.String(); strings.Count(said, "install iptables where this runs") == 0 || strings.Count(said, "\n") != 1 {
		t.Errorf("logged %q, want one line with the remedy", said)
	}
}
