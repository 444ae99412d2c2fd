// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// markerVariable carries the marker from process to process.
const markerVariable = "MESHCNI_SANDBOX"

// Stages of the way inside.
const (
	stageInit   = "init"   // pid 1: starts the program, reaps, hands on signals
	stageSetup  = "setup"  // the program, in namespaces still bare
	stageInside = "inside" // the program and whatever it starts
)

// marker tells a process where it is. A variable alone proves nothing, so each stage checks it against its process ids and
// namespace.
type marker struct {
	Stage string
	// PIDNamespace is the sandbox's, as /proc/self/ns/pid shows it; empty before there is one.
	PIDNamespace string
	Root         bool
	SingleID     bool
	Reason       string
}

func enter(ctx context.Context, o Options) (Info, error) {
	m, err := currentMarker()
	if err != nil {
		return Info{}, err
	}
	switch m.Stage {
	case stageInit:
		return runInit(m)
	case stageSetup:
		return setUp(m)
	case stageInside:
		return m.info(), nil
	}
	return runInside(ctx, o)
}

// currentMarker is the marker this process inherited, and the zero value when there is none or it isn't true here: inherited
// from a sandbox that this process has left, say.
func currentMarker() (marker, error) {
	var m marker
	if json.Unmarshal([]byte(os.Getenv(markerVariable)), &m) != nil {
		return marker{}, nil
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return marker{}, fmt.Errorf("identify PID namespace: %w; mount a proc file system at /proc", err)
	}
	var holds bool
	switch m.Stage {
	case stageInit:
		holds = os.Getpid() == 1
	case stageSetup:
		holds = os.Getppid() == 1 && m.PIDNamespace == namespace
	case stageInside:
		holds = m.PIDNamespace == namespace
	}
	if !holds {
		return marker{}, nil
	}
	return m, nil
}

func (m marker) info() Info {
	return Info{Inside: true, Root: m.Root, SingleID: m.SingleID, Reason: m.Reason}
}

func (m marker) String() string {
	text, err := json.Marshal(m)
	if err != nil { // strings and booleans only: it cannot fail
		panic(err)
	}
	return string(text)
}

// environment is this process's without a marker.
func environment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, markerVariable+"=") {
			kept = append(kept, variable)
		}
	}
	return kept
}
