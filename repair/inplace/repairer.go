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
	"github.com/meshcni/meshcni/repair"
)

// Repairer observes the network namespaces of a node's pods, and repairs them. It is safe for use by several goroutines, one of which may ask
// about a pod at a time. Make it with [NewRepairer].
type Repairer struct {
	options Options
	all     *choice.Dataplane
}

// Options say how pods are looked at and repaired. All fields but OnWarning and Planner must be set.
type Options struct {
	// Finder finds the namespaces.
	Finder *Finder
	// Dataplanes are those that may have applied the rules of a pod, the preferred one first. Have them read the rules of others too (their
	// options' Foreign), or these are not warned of.
	Dataplanes []choice.Candidate
	// Mesh says which pods are captured, and plans for them, as it does for the plugin.
	Mesh Mesh
	// Planner is the version of this program, for the records of its own plans.
	Planner string
	// OnWarning is told what does not keep a pod from being repaired, and may matter later: that it could not be recorded, or that rules of others
	// may still change where its traffic goes. It is called by the goroutine that repairs.
	OnWarning func(repair.Target, error)
}

// Mesh is what a mesh does with a pod.
type Mesh interface {
	repair.Mesh
	// Validate says what is wrong with the mesh, so that it would judge pods or plan for them wrongly.
	Validate() error
	// Owner is whose rules the mesh's are: the plugin's owner.
	Owner() interception.Owner
	// Plan is the plan of a captured pod for a network namespace with these facts.
	Plan(pod interception.Pod, facts interception.Facts) (*interception.Plan, error)
}

// ErrNotRecorded is in what OnWarning is told when a repair could not be recorded: CHECK compares with what was recorded before, if anything
// was. One reason is that nothing names the pod's attachment, neither a record nor libcni's cache: no DEL would take such a record away
// again. As long as the rules stand, they are not given up for what the pod asks for later.
var ErrNotRecorded = errors.New("what was applied is not recorded")

// NewRepairer looks at nothing yet. The error is about the options, those of the mesh included.
func NewRepairer(o Options) (*Repairer, error) {
	all, err := choice.New(o.Dataplanes...)
	if o.Finder == nil {
		err = errors.Join(err, errors.New("no Finder is given"))
	}
	if err = errors.Join(err, checkMesh(o.Mesh)); err != nil {
		return nil, fmt.Errorf("repair pods in place: %w", err)
	}
	if o.OnWarning == nil {
		o.OnWarning = func(repair.Target, error) {}
	}
	return &Repairer{o, all}, nil
}

func checkMesh(m Mesh) error {
	if m == nil {
		return errors.New("no Mesh is given, so that no pod is the mesh's")
	}
	if err := m.Validate(); err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	if err := m.Owner().Validate(); err != nil {
		return fmt.Errorf("owner of the mesh's rules: %w", err)
	}
	return nil
}

// Observe says what is known of a pod beyond its object, for [repair.Diagnose], and changes nothing. What couldn't be found out is left out,
// and the error says why. The namespace of a pod that the mesh's policy leaves alone is looked for only when there is a record of it.
//
// The plan of today is made as the one on record is, or as what the namespace holds: sparing, or not. Whether older connections were spared
// is no difference between what the pod asked for then and what it asks for now.
func (r *Repairer) Observe(ctx context.Context, pod repair.Pod) (repair.Observation, error) {
	record, err := r.options.Finder.records.record(pod)
	own := record != nil && record.UID == pod.UID
	seen := r.options.Finder.records.observed(pod, record, err)
	if !own && !r.options.Mesh.Decide(pod.Pod).Captured {
		return seen, err
	}
	found, notFound := r.options.Finder.findBy(ctx, pod, false)
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

// look reads what a namespace holds, and plans for it: nil for what cannot be known.
func (r *Repairer) look(
	ctx context.Context, pod repair.Pod, ns *interception.Netns, record *journal.Record,
) (*interception.State, *interception.Plan, error) {
	dataplane, err := r.dataplane(record)
	if err != nil {
		return nil, nil, err
	}
	state, err := dataplane.Observe(ctx, ns, r.owner(record))
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

// asHeld is the recorded plan, made sparing where the namespace holds it so: a repair that could not be recorded is none that has to be done
// again.
func asHeld(recorded *interception.Plan, state *interception.State) *interception.Plan {
	if state != nil && !holds(recorded, *state) && holds(recorded.Sparing(), *state) {
		return recorded.Sparing()
	}
	return recorded
}

// dataplane is the one that the record names, or all of them.
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

// owner is whose rules the pod's are.
func (r *Repairer) owner(record *journal.Record) interception.Owner {
	if record != nil {
		return record.Plan.Owner
	}
	return r.options.Mesh.Owner()
}

// planToday is the plan for what the pod asks for now; nil for a pod that would be left alone.
func (r *Repairer) planToday(pod repair.Pod, ns *interception.Netns) (*interception.Plan, error) {
	if !r.options.Mesh.Decide(pod.Pod).Captured {
		return nil, nil
	}
	facts, err := netfacts.Read(ns)
	var plan *interception.Plan
	if err == nil {
		plan, err = r.options.Mesh.Plan(pod.Pod, facts)
	}
	if err != nil {
		return nil, fmt.Errorf("plan for what pod %s asks for now: %w", pod.Target(), err)
	}
	return plan, nil
}

// ours are the differences that are not others' rules.
func ours(want *interception.Plan, state interception.State) []interception.Drift {
	return slices.DeleteFunc(interception.Diff(want, state), func(d interception.Drift) bool { return d.Kind == interception.DriftForeign })
}

// holds says whether a namespace holds the plan, whatever others have there.
func holds(want *interception.Plan, state interception.State) bool {
	return len(ours(want, state)) == 0
}

func isEmpty(state interception.State) bool {
	return len(state.Objects) == 0 && len(state.Deviations) == 0
}
