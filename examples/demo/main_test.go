// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Names under which the test binary acts as this program.
const (
	asDemo = "demo"
	// asDoubter is this program with wrong expectations.
	asDoubter = "doubter"
)

// refusedPort is the port on which the doubter expects a refusal. It expects one of queries, too.
const refusedPort = 3306

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != asDemo && os.Args[1] != asDoubter {
		os.Exit(m.Run())
	}
	env := processEnvironment()
	env.args = os.Args[2:]
	env.self = append(env.self, os.Args[1])
	if os.Args[1] == asDoubter {
		env.expect = doubt
	}
	os.Exit(run(context.Background(), env))
}

func doubt(w trace.World, p trace.Packet) (trace.Outcome, error) {
	outcome, err := trace.Trace(w, p)
	if p.Dst.Port() == refusedPort || p.Protocol == interception.ProtocolUDP {
		outcome.Verdict = trace.Refused
	}
	return outcome, err
}
