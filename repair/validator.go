// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Validator describes an init container or native sidecar that tests whether its pod is captured,
// and how it reports that the pod is not. It is data: add one for your own mesh.
type Validator struct {
	// Container is the container's name. An empty name matches every init container, but then only
	// ends that the other fields describe count.
	Container string
	// ExitCodes are the exit codes for "not captured"; empty for any code but 0.
	ExitCodes []int32
	// Message is the whole termination message for "not captured", without leading and trailing
	// white space; empty for any message.
	Message string
}

// IstioValidator is istio-validation. It exits with 126 if connections do not reach the proxy's
// ports, and with 1 after any other error.
func IstioValidator() Validator {
	return Validator{Container: "istio-validation", ExitCodes: []int32{126}}
}

// LinkerdValidator is linkerd-network-validator, which exits with 95 (EOPNOTSUPP).
func LinkerdValidator() Validator {
	return Validator{Container: "linkerd-network-validator", ExitCodes: []int32{95}}
}

// KumaValidator is kuma-validation. It is a subcommand of kumactl, which exits with 1 after any
// error: a validator that could not read its configuration looks like one that found no rules.
// Compare the kernel too (see [Observation]) before pods are deleted for it.
func KumaValidator() Validator {
	return Validator{Container: "kuma-validation", ExitCodes: []int32{1}}
}

// MeshValidator is mesh-validator, one of this project's examples. It exits with 126 if connections
// do not reach the proxy's ports; its message lists them.
func MeshValidator() Validator {
	return Validator{Container: "mesh-validator", ExitCodes: []int32{126}}
}

// blames reports whether the validator ended with "not captured".
func (v Validator) blames(t Termination) bool {
	return t.ExitCode != 0 && !t.ofRuntime() &&
		(len(v.ExitCodes) == 0 || slices.Contains(v.ExitCodes, t.ExitCode)) &&
		(v.Message == "" || strings.TrimSpace(v.Message) == strings.TrimSpace(t.Message))
}

// ofRuntime reports whether the exit code comes from the container runtime: the program never ran,
// or its own code was lost. Docker uses 126 for a program that it cannot execute.
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

// outcome is the result of a validator. Of several, the highest counts.
type outcome int

const (
	noValidator outcome = iota
	passed
	notRun
	died   // failed, but not with "not captured"
	blamed // reported "not captured"
)

type run struct {
	outcome   outcome
	container string
	end       Termination // for passed by its end, died and blamed
	last      bool        // the end belongs to the previous run
}

func (r run) String() string {
	text := "init container " + r.container + ": " + r.end.String()
	if r.last {
		text += ", in its last run"
	}
	return text
}

// validate returns the run that counts, of all validators.
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

// runs returns the validator's runs in the pod.
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

// initContainer reports whether the pod has an init container of that name, and whether it is a
// native sidecar.
func initContainer(pod Pod, name string) (sidecar, found bool) {
	for _, c := range pod.Containers {
		if c.Init && c.Name == name {
			return c.IsSidecar(), true
		}
	}
	return false, false
}
