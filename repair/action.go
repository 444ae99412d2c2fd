// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Mode is what can be done about a pod. The texts are stable: policies, logs and metrics use them.
type Mode string

// The modes.
const (
	// ModeNothing leaves the pod alone.
	ModeNothing Mode = "nothing"
	// ModeReport tells: by an event, a log line, a metric. It changes nothing, and costs no budget.
	ModeReport Mode = "report"
	// ModeLabel puts the policy's label on the pod, for others to act on.
	ModeLabel Mode = "label"
	// ModeDelete deletes the pod, so that its owner makes another.
	ModeDelete Mode = "delete"
	// ModeEvict asks for its eviction, which respects disruption budgets
	// (https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/).
	ModeEvict Mode = "evict"
	// ModeRepair puts the rules into the namespace of the pod that lives there.
	ModeRepair Mode = "repair"
)

// disrupts says whether the mode ends the pod's life.
func (m Mode) disrupts() bool { return m == ModeDelete || m == ModeEvict }

// Action is what is to be done about a pod.
type Action struct {
	// Do is what.
	Do Mode
	// Target is the pod that was diagnosed. Whatever is done, its UID must be the pod's; what is sent to the API server has UID and
	// ResourceVersion as preconditions.
	Target Target
	// Owner names the pod's controller, kind and name, or is empty for a pod without one: its pods share a part of a [Budget].
	Owner string
	// Label is what ModeLabel puts on the pod.
	Label Label
	// Plan is what ModeRepair applies, to a namespace where it is first observed once more; nil for the others.
	Plan *interception.Plan
	// Why is why it is done, or nothing is.
	Why string
	// Skipped are the modes that the rule has before this one, and why they cannot be done to this pod.
	Skipped []Skipped
}

// Skipped is a mode that cannot be done to a pod.
type Skipped struct {
	Mode Mode
	// Why says what is in the way, and where there is one, the way out.
	Why string
}

// String is the mode, the pod, and why, in one line.
func (a Action) String() string {
	var b strings.Builder
	b.WriteString(string(a.Do) + " " + a.Target.String() + ": " + a.Why)
	for _, s := range a.Skipped {
		b.WriteString("; not " + string(s.Mode) + ": " + s.Why)
	}
	return b.String()
}
