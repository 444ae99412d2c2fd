// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/repair"
)

// Repair makes the pod's network namespace hold the plan, and spares the connections of the running
// pod. It finds and opens the namespace, observes it again, applies the plan and verifies it, all
// on one descriptor. Then it records the plan as the new baseline.
//
// The plan is that of a [repair.Finding]: the recorded one if the pod has a record; otherwise
// today's plan, for a namespace that holds nothing of the owner's. Repair refuses any other plan
// ([ErrChanged]), and a pod that is not found beyond doubt ([*podnetns.RefusalError]); a refusal
// changes nothing. A namespace that already holds the plan, sparing or not, is left as it is. The
// error is [ErrUnrepaired] if the plan did not last until it was verified. Other errors come from
// the dataplane or the context.
func (r *Repairer) Repair(ctx context.Context, pod repair.Pod, plan *interception.Plan) error {
	record, err := r.records.Record(refOf(pod))
	if err != nil {
		return err
	}
	if record != nil && record.UID != pod.UID {
		record = nil
	}
	found, err := r.options.Finder.Find(ctx, refOf(pod))
	if err != nil {
		return err
	}
	defer found.Netns.Close() //nolint:errcheck // what was written through it has been verified
	w := &work{Repairer: r, pod: pod, found: found, record: record, want: plan.Sparing()}
	if w.dataplane, err = r.dataplane(record); err != nil {
		return err
	}
	return w.do(ctx, plan)
}

type work struct {
	*Repairer
	pod       repair.Pod
	found     *podnetns.Found
	record    *journal.Record // nil without a record
	want      *interception.Plan
	dataplane *choice.Dataplane
}

func (w *work) do(ctx context.Context, plan *interception.Plan) error {
	state, today, err := w.look(ctx, w.pod, w.found.Netns, w.record)
	if state == nil || err != nil && w.record == nil {
		return err
	}
	if err := w.permit(*state, today); err != nil {
		return err
	}
	if holds(plan, *state) || holds(w.want, *state) {
		return nil
	}
	by, err := w.dataplane.ApplyBy(ctx, w.found.Netns, w.want)
	if err != nil {
		return fmt.Errorf("repair pod %s in place: %w", w.pod.Target(), err)
	}
	after, err := w.dataplane.Observe(ctx, w.found.Netns, w.want.Owner)
	if err != nil {
		return fmt.Errorf("verify the repair of pod %s: %w", w.pod.Target(), err)
	}
	if drift := ours(w.want, after); len(drift) > 0 {
		return w.refuse(ErrUnrepaired, fmt.Sprintf("there were %d differences right after its rules were applied: %s", len(drift), drift[0]))
	}
	if foreign := interception.Diff(w.want, after); len(foreign) > 0 {
		w.options.OnWarning(w.pod.Target(),
			fmt.Errorf("other programs have %d rules that may change where its traffic goes: %s", len(foreign), foreign[0]))
	}
	if err := w.keep(by); err != nil {
		w.options.OnWarning(w.pod.Target(), fmt.Errorf("%w: %w", ErrNotRecorded, err))
	}
	return nil
}

// permit refuses a plan that is not the pod's.
func (w *work) permit(state interception.State, today *interception.Plan) error {
	same := func(p *interception.Plan) bool { return p != nil && p.Sparing().Fingerprint() == w.want.Fingerprint() }
	switch {
	case w.record != nil && !same(w.record.Plan):
		return w.refuse(ErrChanged, "the plan is not the one on record")
	case w.record == nil && !same(today):
		return w.refuse(ErrChanged, "the plan is not what the pod asks for now, and nothing is on record")
	case w.record == nil && !isEmpty(state) && !holds(today, state):
		return w.refuse(ErrChanged, "nothing is on record, and its network namespace holds rules that may be what was meant")
	default:
		return nil
	}
}

func (w *work) refuse(why error, detail string) error {
	return fmt.Errorf("pod %s (uid %s) is not repaired in place: %s; its network namespace is %s; %w",
		w.pod.Target(), w.pod.UID, detail, w.found.Netns, why)
}

// keep records what was applied, as an ADD does. A recorded plan keeps the planner that made it.
func (w *work) keep(by string) error {
	kept := journal.Record{
		Attachment: w.found.Attachment, Planner: w.options.Planner,
		Namespace: w.pod.Namespace, Name: w.pod.Name, UID: w.pod.UID, Netns: w.found.Path,
	}
	if w.record != nil {
		kept.Planner = w.record.Planner
		if w.record.NetnsID == w.found.Netns.ID() {
			kept.Attachment, kept.Netns = w.record.Attachment, w.record.Netns
		}
	}
	if kept.Attachment == (journal.Attachment{}) {
		return errors.New("nothing on the node says by which container and network it is known to plugins")
	}
	kept.Time, kept.NetnsID, kept.Dataplane, kept.Plan = time.Now().UTC(), w.found.Netns.ID(), by, w.want
	return w.options.Finder.Write(kept, w.found)
}
