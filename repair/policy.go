// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Policy is what the operator wants done about pods. The zero value reports what isn't in order, and touches nothing.
type Policy struct {
	// Rules are asked in order. The first that is about the pod and the verdict decides alone.
	Rules []Rule
	// Label is what ModeLabel puts on a pod. A policy with a rule that labels needs one: your mesh's own, or [IstioLabel].
	Label Label
}

// Rule is what is done about some pods.
type Rule struct {
	// Namespaces are those that the rule is about, by exact name; empty for all.
	Namespaces []string
	// OwnerKinds are the kinds of the pods' controllers that the rule is about, such as "ReplicaSet" or "Job", and [NoOwner]; empty for
	// all. Pods that are never restarted are deleted and evicted only by a rule that names their owner's kind: what they have done so
	// far is lost, and a Job counts them as failed.
	OwnerKinds []string
	// Verdicts are those that the rule is about; empty for Broken alone.
	Verdicts []Verdict
	// Do is what is done, in order of preference: the first that can be done to the pod is. Where none can, it is reported. An
	// empty one is ModeNothing.
	Do []Mode
	// LoseUnowned allows to delete and evict pods that no controller makes anew.
	LoseUnowned bool
}

// NoOwner stands among owner kinds for pods without a controller.
const NoOwner = ""

// Label is a label's key and value.
type Label struct{ Key, Value string }

// IstioLabel is the label of Istio's repair controller, which dashboards and selectors know.
func IstioLabel() Label { return Label{Key: "cni.istio.io/uninitialized", Value: "true"} }

// ErrPolicy means that a policy or limits contradict themselves, or name what there is not.
var ErrPolicy = errors.New("invalid repair policy")

// Validate says what is wrong with the policy: every mistake at once, each with the number of its rule, from 0. errors.Is(err,
// ErrPolicy) holds for the error.
func (p Policy) Validate() error {
	var errs []error
	for i, rule := range p.Rules {
		for _, err := range rule.mistakes() {
			errs = append(errs, fmt.Errorf("%w: rule %d: %w", ErrPolicy, i, err))
		}
	}
	labels := slices.ContainsFunc(p.Rules, func(r Rule) bool { return slices.Contains(r.Do, ModeLabel) })
	switch {
	case p.Label.Key != "":
	case p.Label.Value != "":
		errs = append(errs, fmt.Errorf("%w: the label has the value %q and no key", ErrPolicy, p.Label.Value))
	case labels:
		errs = append(errs, fmt.Errorf("%w: a rule labels, and the policy has no Label: give it your mesh's own, or IstioLabel()", ErrPolicy))
	}
	return errors.Join(errs...)
}

func (r Rule) mistakes() []error {
	var errs []error
	for _, kind := range r.OwnerKinds {
		if owned, is := ownerOfOwners(kind); is {
			errs = append(errs, fmt.Errorf("the controller of a %s's pods is a %s: name that", kind, owned))
		}
	}
	if slices.Contains(r.Namespaces, "") {
		errs = append(errs, errors.New("a namespace has no name: leave the list empty for all"))
	}
	for _, v := range r.Verdicts {
		if !actionable(v) {
			errs = append(errs, fmt.Errorf("nothing is done about %q: name %s", v, listed(actionables())))
		}
	}
	for i, mode := range r.Do {
		if err := misplaced(mode, r.Do[:i]); err != nil {
			errs = append(errs, err)
		}
	}
	if slices.Contains(r.Do, ModeRepair) && slices.ContainsFunc(r.Verdicts, func(v Verdict) bool { return v != Broken }) {
		errs = append(errs, errors.New("only broken pods are repaired in place: others have their rules, or nobody knows which"))
	}
	return errs
}

// misplaced says what is wrong with a mode behind others.
func misplaced(mode Mode, before []Mode) error {
	always := slices.IndexFunc(before, func(m Mode) bool { return m == ModeNothing || m == ModeReport })
	switch {
	case !slices.Contains(modes(), mode):
		return fmt.Errorf("%q is no mode: name %s", mode, listed(modes()))
	case slices.Contains(before, mode):
		return fmt.Errorf("%s is named twice", mode)
	case always >= 0:
		return fmt.Errorf("%s comes behind %s, which can always be done", mode, before[always])
	default:
		return nil
	}
}

// ownerOfOwners names the kind that stands between an object that people know and its pods.
func ownerOfOwners(kind string) (owned string, is bool) {
	switch kind {
	case "Deployment":
		return "ReplicaSet", true
	case "CronJob":
		return "Job", true
	default:
		return "", false
	}
}

func modes() []Mode {
	return []Mode{ModeNothing, ModeReport, ModeLabel, ModeDelete, ModeEvict, ModeRepair}
}

// actionables are the verdicts about which something can be done.
func actionables() []Verdict { return []Verdict{Broken, Suspect, Unknown, Changed, Outdated} }

func actionable(v Verdict) bool { return slices.Contains(actionables(), v) }

func listed[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}

// rule is the first rule that is about the pod and the verdict.
func (p Policy) rule(pod Pod, verdict Verdict) (number int, found bool) {
	owner, _ := pod.Controller() // the zero one has the kind NoOwner
	number = slices.IndexFunc(p.Rules, func(r Rule) bool {
		return (len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, pod.Namespace)) &&
			(len(r.OwnerKinds) == 0 || slices.Contains(r.OwnerKinds, owner.Kind)) &&
			(slices.Contains(r.Verdicts, verdict) || len(r.Verdicts) == 0 && verdict == Broken)
	})
	return number, number >= 0
}

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
