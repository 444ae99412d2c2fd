// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/repair"
)

// Repairer observes the network namespaces of a node's pods, and repairs them. It is safe for
// concurrent use, if no two goroutines use it for the same pod at a time. Create it with
// [NewRepairer].
type Repairer struct {
	options Options
	records Records
	all     *choice.Dataplane
}

// Options configure how a [Repairer] observes and repairs pods. All fields but OnWarning and
// Planner must be set.
type Options struct {
	// Finder finds the namespaces.
	Finder *podnetns.Finder
	// Dataplanes are those that may have applied a pod's rules, the preferred one first. Let them
	// read the rules of other programs too (Foreign in their options), or the Repairer cannot warn
	// of those.
	Dataplanes []choice.Candidate
	// Mesh decides which pods are captured, as it does for the plugin.
	Mesh Mesh
	// Owner is the owner of the mesh's rules: the plugin's owner.
	Owner interception.Owner
	// Plan returns the plan of a captured pod for a network namespace with these facts, as the
	// plugin makes it.
	Plan func(pod interception.Pod, facts interception.Facts) (*interception.Plan, error)
	// Planner is the version of this program, for the records of its own plans.
	Planner string
	// OnWarning receives what does not prevent a repair but may matter later: the repair could not
	// be recorded, or rules of other programs may still redirect the pod's traffic. The goroutine
	// that repairs calls it.
	OnWarning func(repair.Target, error)
}

// Mesh decides about pods. A sidecar.Mesh is one.
type Mesh interface {
	repair.Mesh
	// Validate returns an error for settings by which the mesh would judge pods wrongly.
	Validate() error
}

// ErrNotRecorded is in the error that OnWarning receives if a repair could not be recorded. CHECK
// then compares with the earlier record, if there is one. One cause is that neither a record nor
// libcni's cache names the pod's attachment: no DEL would remove a record without it. As long as
// the rules are in place, they are not replaced by what the pod asks for later.
var ErrNotRecorded = errors.New("what was applied could not be recorded")

// ErrChanged is in the error of [Repairer.Repair] for a plan that is not, or no longer, the pod's.
var ErrChanged = errors.New("look at the pod again, or have it created again")

// ErrUnrepaired is in the error of [Repairer.Repair] for a namespace that differs from the plan
// right after the plan was applied.
var ErrUnrepaired = errors.New("find out which program changes the rules of the namespace meanwhile")

// NewRepairer returns a Repairer, and looks at nothing yet. The error is about the options, those
// of the mesh included.
func NewRepairer(o Options) (*Repairer, error) {
	all, err := choice.New(o.Dataplanes...)
	if o.Finder == nil {
		err = errors.Join(err, errors.New("no Finder is given"))
	}
	if err = errors.Join(err, o.checkMesh()); err != nil {
		return nil, fmt.Errorf("repair pods in place: %w", err)
	}
	if o.OnWarning == nil {
		o.OnWarning = func(repair.Target, error) {}
	}
	return &Repairer{o, Records{o.Finder.Records}, all}, nil
}

func (o Options) checkMesh() error {
	if o.Mesh == nil || o.Plan == nil {
		return errors.New("no Mesh or no Plan is given, so that no pod is the mesh's")
	}
	if err := o.Mesh.Validate(); err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	if err := o.Owner.Validate(); err != nil {
		return fmt.Errorf("owner of the mesh's rules: %w", err)
	}
	return nil
}

// Observe returns what is known of a pod beyond its object, for [repair.Diagnose], and changes
// nothing. It leaves out what it could not find out, and returns the reason as the error. If the
// mesh's policy leaves the pod alone, Observe looks for its namespace only if the pod has a record.
//
// Today's plan is sparing if the recorded plan is, or what the namespace holds. Whether older
// connections were spared makes no difference between what the pod asked for then and what it asks
// for now.
func (r *Repairer) Observe(ctx context.Context, pod repair.Pod) (repair.Observation, error) {
	record, err := r.records.Record(refOf(pod))
	own := record != nil && record.UID == pod.UID
	seen := r.records.observed(pod, record, err)
	if !own && !r.options.Mesh.Decide(pod.Pod).Capture {
		return seen, err
	}
	found, notFound := r.options.Finder.FindToRead(ctx, refOf(pod))
	if notFound != nil {
		return seen, errors.Join(err, notFound)
	}
	defer found.Netns.Close() //nolint:errcheck // nothing is written through it
	if !own {
		record = nil
	}
	state, plan, failed := r.look(ctx, pod, found.Netns, record)
	if own {
		seen.Record.Plan = asHeld(record.Plan, state)
	}
	seen.State, seen.Today = state, plan
	return seen, errors.Join(err, failed)
}

// look reads what a namespace holds, and plans for it; it returns nil for what it cannot learn.
func (r *Repairer) look(
	ctx context.Context, pod repair.Pod, ns *interception.Netns, record *journal.Record,
) (*interception.State, *interception.Plan, error) {
	dataplane, err := r.dataplane(record)
	if err != nil {
		return nil, nil, err
	}
	owner := r.options.Owner
	if record != nil {
		owner = record.Plan.Owner
	}
	state, err := dataplane.Observe(ctx, ns, owner)
	if err != nil {
		return nil, nil, fmt.Errorf("observe the network namespace of pod %s: %w", pod.Target(), err)
	}
	today, err := r.planToday(pod, ns)
	if err != nil || today == nil {
		return &state, nil, err
	}
	if record != nil && asHeld(record.Plan, &state).IsSparing() || record == nil && (isEmpty(state) || holds(today.Sparing(), state)) {
		today = today.Sparing()
	}
	return &state, today, nil
}

// asHeld returns the recorded plan, made sparing if the namespace holds it that way: a repair that
// could not be recorded need not be repeated.
func asHeld(recorded *interception.Plan, state *interception.State) *interception.Plan {
	if state != nil && !holds(recorded, *state) && holds(recorded.Sparing(), *state) {
		return recorded.Sparing()
	}
	return recorded
}

// dataplane returns the one that the record names, or all of them.
func (r *Repairer) dataplane(record *journal.Record) (*choice.Dataplane, error) {
	if record == nil || record.Dataplane == "" {
		return r.all, nil
	}
	i := slices.IndexFunc(r.options.Dataplanes, func(c choice.Candidate) bool { return c.Name == record.Dataplane })
	if i < 0 {
		return nil, fmt.Errorf("the rules of %s were applied by the dataplane %q, which isn't here: %w",
			record.Attachment, record.Dataplane, interception.ErrUnsupported)
	}
	return choice.New(r.options.Dataplanes[i])
}

// planToday returns the plan for what the pod asks for now; nil for a pod that would be left alone.
func (r *Repairer) planToday(pod repair.Pod, ns *interception.Netns) (*interception.Plan, error) {
	if !r.options.Mesh.Decide(pod.Pod).Capture {
		return nil, nil
	}
	facts, err := netfacts.Read(ns)
	var plan *interception.Plan
	if err == nil {
		plan, err = r.options.Plan(pod.Pod, facts)
	}
	if err != nil {
		return nil, fmt.Errorf("plan for what pod %s asks for now: %w", pod.Target(), err)
	}
	return plan, nil
}

// ours returns the differences other than rules of other programs.
func ours(want *interception.Plan, state interception.State) []interception.Drift {
	return slices.DeleteFunc(interception.Diff(want, state), func(d interception.Drift) bool { return d.Kind == interception.DriftForeign })
}

// holds reports whether a namespace holds the plan, whatever other programs' rules it has.
func holds(want *interception.Plan, state interception.State) bool {
	return len(ours(want, state)) == 0
}

func isEmpty(state interception.State) bool {
	return len(state.Objects) == 0 && len(state.Deviations) == 0
}
