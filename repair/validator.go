// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Validator says how an init container or native sidecar that tries whether its pod is captured tells that it isn't. It is data: a
// mesh of your own adds another.
type Validator struct {
	// Container is the container's name. An empty one stands for every init container, of which then only an end that the other
	// fields describe counts.
	Container string
	// ExitCodes are those that say "not captured"; empty for any but 0.
	ExitCodes []int32
	// Message is the whole termination message that says so, blanks around it aside; empty for any.
	Message string
}

// IstioValidator is istio-validation: it ends with 126 when connections don't reach the proxy's ports, and with 1 for all else.
func IstioValidator() Validator {
	return Validator{Container: "istio-validation", ExitCodes: []int32{126}}
}

// LinkerdValidator is linkerd-network-validator, which ends with 95 (EOPNOTSUPP).
func LinkerdValidator() Validator {
	return Validator{Container: "linkerd-network-validator", ExitCodes: []int32{95}}
}

// KumaValidator is kuma-validation. It is a subcommand of kumactl, which ends with 1 whatever went wrong: a validator that could not read
// its configuration looks like one that found no rules. Have the kernel compared too (see [Observation]) before pods are deleted for it.
func KumaValidator() Validator {
	return Validator{Container: "kuma-validation", ExitCodes: []int32{1}}
}

// MeshValidator is mesh-validator, which is among this project's examples. It ends with 126 when connections don't reach the proxy's ports; its
// message says which.
func MeshValidator() Validator {
	return Validator{Container: "mesh-validator", ExitCodes: []int32{126}}
}

// blames says whether the end is one by which the validator says "not captured".
func (v Validator) blames(t Termination) bool {
	return t.ExitCode != 0 && !t.ofRuntime() &&
		(len(v.ExitCodes) == 0 || slices.Contains(v.ExitCodes, t.ExitCode)) &&
		(v.Message == "" || strings.TrimSpace(v.Message) == strings.TrimSpace(t.Message))
}

// ofRuntime says whether the exit code is the runtime's, as the program never ran, or its own got lost. Docker ends what it cannot execute
// with 126.
func (t Termination) ofRuntime() bool {
	return t.Reason == "ContainerCannotRun" || t.Reason == "StartError" || t.Reason == "ContainerStatusUnknown"
}

func (t Termination) String() string {
	text := "exit code " + strconv.Itoa(int(t.ExitCode))
	if t.Reason != "" {
		text += " (" + t.Reason + ")"
	}
	if message := strings.TrimSpace(t.Message); message != "" {
		text += fmt.Sprintf(": %q", message)
	}
	return text
}

// outcome is what a validator came to. Of several, the highest counts.
type outcome int

const (
	noValidator outcome = iota
	passed
	notRun
	died   // failed, and not by what says "not captured"
	blamed // said "not captured"
)

// run is a validator's run in a pod.
type run struct {
	outcome   outcome
	container string
	end       Termination // of passed by its end, died and blamed
	last      bool        // the end is that of the run before
}

func (r run) String() string {
	text := "init container " + r.container + ": " + r.end.String()
	if r.last {
		text += ", in its last run"
	}
	return text
}

// validate is the run of the pod's validators that counts.
func validate(pod Pod, validators []Validator) run {
	var worst run
	for _, v := range validators {
		for _, r := range v.runs(pod) {
			if r.outcome > worst.outcome {
				worst = r
			}
		}
	}
	return worst
}

// runs are those of the validator in the pod.
func (v Validator) runs(pod Pod) []run {
	var runs []run
	for _, status := range pod.Statuses {
		switch r := v.run(pod, status); {
		case !status.Init, v.Container != "" && v.Container != status.Name, v.Container == "" && r.outcome != blamed:
		default:
			runs = append(runs, r)
		}
	}
	if _, found := initContainer(pod, v.Container); found && len(runs) == 0 && v.Container != "" {
		runs = append(runs, run{outcome: notRun, container: v.Container})
	}
	return runs
}

// run reads one container's status.
func (v Validator) run(pod Pod, status ContainerStatus) run {
	r := run{outcome: notRun, container: status.Name}
	end := status.State.Terminated
	if end == nil {
		if sidecar, _ := initContainer(pod, status.Name); sidecar && status.State.Running && status.Started {
			r.outcome = passed
			return r
		}
		if status.Last.Terminated == nil || status.Last.Terminated.ExitCode == 0 {
			return r
		}
		end, r.last = status.Last.Terminated, true
	}
	r.end = *end
	switch {
	case end.ExitCode == 0:
		r.outcome = passed
	case v.blames(*end):
		r.outcome = blamed
	default:
		r.outcome = died
	}
	return r
}

// initContainer says whether the pod has an init container of that name, and whether it is a native sidecar.
func initContainer(pod Pod, name string) (sidecar, found bool) {
	for _, c := range pod.Containers {
		if c.Init && c.Name == name {
			return c.IsSidecar(), true
		}
	}
	return false, false
}
