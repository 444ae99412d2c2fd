// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Policy is what the operator wants done about pods. The zero value reports what is not in order,
// and touches nothing.
type Policy struct {
	// Rules are tried in order. The first that matches the pod and the verdict decides alone.
	Rules []Rule
	// Label is what ModeLabel puts on a pod. A policy with a rule that labels needs one: your
	// mesh's own, or [IstioLabel].
	Label Label
}

// Rule is what is done about some pods.
type Rule struct {
	// Namespaces are those that the rule matches, by exact name; empty for all.
	Namespaces []string
	// OwnerKinds are the kinds of controllers whose pods the rule matches, such as "ReplicaSet" or
	// "Job", and [NoOwner]; empty for all. Pods that are never restarted are deleted and evicted
	// only by a rule that names their owner's kind: their work so far is lost, and a Job counts
	// them as failed.
	OwnerKinds []string
	// Verdicts are those that the rule matches; empty for Broken alone.
	Verdicts []Verdict
	// Do lists what to do in order of preference: the first mode that can be applied to the pod is.
	// If none can, the pod is reported. An empty list is ModeNothing. Package controller also uses
	// the next mode once four repairs in place have failed.
	Do []Mode
	// LoseUnowned allows deleting and evicting pods that no controller recreates.
	LoseUnowned bool
}

// NoOwner is the owner kind that matches pods without a controller.
const NoOwner = ""

// Label is a label's key and value.
type Label struct{ Key, Value string }

// IstioLabel returns the label of Istio's repair controller, which dashboards and selectors know.
func IstioLabel() Label { return Label{Key: "cni.istio.io/uninitialized", Value: "true"} }

// ErrPolicy means that a policy or limits contradict themselves, or name something that does not
// exist.
var ErrPolicy = errors.New("invalid repair policy")

// Validate returns an error with every mistake in the policy, each with the number of its rule,
// from 0. errors.Is(err, ErrPolicy) holds for the error.
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
			errs = append(errs, fmt.Errorf("no rule can act on the verdict %q: name %s", v, listed(actionables())))
		}
	}
	for i, mode := range r.Do {
		if err := misplaced(mode, r.Do[:i]); err != nil {
			errs = append(errs, err)
		}
	}
	if slices.Contains(r.Do, ModeRepair) && slices.ContainsFunc(r.Verdicts, func(v Verdict) bool { return v != Broken }) {
		errs = append(errs, errors.New("only broken pods are repaired in place: others have their rules, or it is unknown which"))
	}
	return errs
}

// misplaced returns an error for a mode that must not follow those before it.
func misplaced(mode Mode, before []Mode) error {
	always := slices.IndexFunc(before, func(m Mode) bool { return m == ModeNothing || m == ModeReport })
	switch {
	case !slices.Contains(modes(), mode):
		return fmt.Errorf("%q is not a mode: name %s", mode, listed(modes()))
	case slices.Contains(before, mode):
		return fmt.Errorf("%s is named twice", mode)
	case always >= 0:
		return fmt.Errorf("%s comes after %s, which can always be done", mode, before[always])
	default:
		return nil
	}
}

// ownerOfOwners returns the kind of object between an object that users know and its pods.
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

// actionables returns the verdicts that a rule can act on.
func actionables() []Verdict { return []Verdict{Broken, Suspect, Unknown, Changed, Outdated} }

func actionable(v Verdict) bool { return slices.Contains(actionables(), v) }

func listed[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}

// rule returns the number of the first rule that matches the pod and the verdict.
func (p Policy) rule(pod Pod, verdict Verdict) (number int, found bool) {
	owner, _ := pod.Controller() // the zero reference has the kind NoOwner
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
	// ModeReport reports the pod: by an event, a log line, a metric. It changes nothing, and takes
	// nothing from a budget.
	ModeReport Mode = "report"
	// ModeLabel puts the policy's label on the pod, for other programs to act on.
	ModeLabel Mode = "label"
	// ModeDelete deletes the pod, so that its owner creates another.
	ModeDelete Mode = "delete"
	// ModeEvict evicts the pod, which respects disruption budgets
	// (https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/).
	ModeEvict Mode = "evict"
	// ModeRepair restores the rules in the namespace of the running pod.
	ModeRepair Mode = "repair"
)

// disrupts reports whether the mode ends the pod.
func (m Mode) disrupts() bool { return m == ModeDelete || m == ModeEvict }

// Action is what is to be done about a pod.
type Action struct {
	// Do is the mode.
	Do Mode
	// Target is the pod that was diagnosed. Whatever is done, its UID must be the pod's; requests
	// to the API server have UID and ResourceVersion as preconditions.
	Target Target
	// Owner is the kind, namespace and name of the pod's controller; empty for a pod without one.
	// Pods of one owner share a part of a [Budget].
	Owner string
	// Label is what ModeLabel puts on the pod.
	Label Label
	// Plan is what ModeRepair applies, after the namespace was observed once more; nil for other
	// modes.
	Plan *interception.Plan
	// Why explains why it is done, or why nothing is.
	Why string
	// Skipped are the modes that the rule prefers, and why they cannot be applied to this pod.
	Skipped []Skipped
}

// Skipped is a mode that cannot be applied to a pod.
type Skipped struct {
	Mode Mode
	// Why explains the obstacle, and how to remove it where that is possible.
	Why string
}

// String returns the mode, the pod, and why, in one line.
func (a Action) String() string {
	var b strings.Builder
	b.WriteString(string(a.Do) + " " + a.Target.String() + ": " + a.Why)
	for _, s := range a.Skipped {
		b.WriteString("; not " + string(s.Mode) + ": " + s.Why)
	}
	return b.String()
}
