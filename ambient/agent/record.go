// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/internal/version"
)

// network is the journal's name for what the agent applies.
const network = "ambient"

// attachment returns under what the journal has a pod.
func attachment(uid string) journal.Attachment {
	return journal.Attachment{Network: network, ContainerID: uid, Interface: "pod"}
}

// recorded is a record of an earlier agent. A damaged one has the attachment alone.
type recorded struct {
	journal.Record
	damage error
}

// records returns the journal's records. A damaged one is no error: the other pods need the agent.
func (a *Agent) records() (all []recorded, err error) {
	attachments, err := a.options.Journal.Attachments()
	if err != nil {
		return nil, err
	}
	for _, one := range attachments {
		if one != attachment(one.ContainerID) {
			return nil, fmt.Errorf("%s has a record of %q, which is not this agent's: give the agent a directory of its own",
				a.options.Journal.Directory, one)
		}
		record, err := a.options.Journal.Read(one)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil && !errors.Is(err, journal.ErrRecord) {
			return nil, err
		}
		record.Attachment = one
		all = append(all, recorded{record, err})
	}
	return all, nil
}

// remember makes the worker of a recorded pod. A proxy that knows the pod goes on with it. If the
// record is damaged, nothing is known but that the pod may have rules.
func (a *Agent) remember(record recorded) error {
	uid := record.ContainerID
	if record.damage == nil && (record.UID != uid || record.Plan.Owner != a.options.Owner) {
		return fmt.Errorf("the record of %s is of pod %q and owner %q: remove the file if that is another program's",
			record.Attachment, record.UID, record.Plan.Owner)
	}
	if err := a.server.Set(zds.Workload{UID: uid}, nil); err != nil {
		return err
	}
	w := newWorker(a, uid)
	w.plan, w.recorded, w.recordedIn, w.set = a.plans.share(record.Plan), true, record.NetnsID, true
	w.noted = notes{record.ServiceAccount, record.RuntimeUID, record.Addresses, record.Leaving}
	w.damaged, w.state.Err, w.counted = record.damage != nil, record.damage, true
	w.name(record.Namespace, record.Name)
	a.workers[uid] = w
	return nil
}

// notes are what a record says beside the plan. By them the next agent goes on with the pod while
// no feed tells of it.
type notes struct {
	account   string
	runtime   string       // the UID by which the node knows the pod
	addresses []netip.Addr // sorted
	leaving   bool         // the pod is on its way out of the mesh, or not captured yet ([ambient.StepPrepare])
}

func (n notes) equal(other notes) bool {
	return n.account == other.account && n.runtime == other.runtime && n.leaving == other.leaving && slices.Equal(n.addresses, other.addresses)
}

// notes returns what is to be recorded. Of a pod that no feed has told of it is what is recorded.
func (w *worker) notes(leaving bool) notes {
	now := w.noted
	now.leaving = leaving
	if w.pod.UID == "" {
		return now
	}
	now.account, now.runtime = w.pod.ServiceAccount, roster.RuntimeUID(w.pod.Pod)
	if known := w.addresses(); len(known) > 0 {
		now.addresses = slices.SortedFunc(slices.Values(known), netip.Addr.Compare)
	}
	return now
}

// isKept reports whether the record is enough to go on with the pod. Records of earlier versions
// have no addresses.
func (w *worker) isKept() bool {
	return w.recorded && !w.damaged && w.plan != nil && !w.noted.leaving && len(w.noted.addresses) > 0
}

// record notes the plan, before anything of the pod is in the kernel: what is there has a record.
// It does so again when the notes have changed.
func (w *worker) record(leaving bool) error {
	now := w.notes(leaving)
	if w.recorded && !w.damaged && w.noted.equal(now) {
		return nil
	}
	in := w.recordedIn
	if w.namespace != nil {
		in = w.namespace.ID()
	}
	err := w.agent.options.Journal.Write(journal.Record{
		Attachment: attachment(w.uid), Time: time.Now(), Planner: version.String(),
		Namespace: w.pod.Namespace, Name: w.pod.Name, UID: w.uid, NetnsID: in, Plan: w.plan,
		ServiceAccount: now.account, RuntimeUID: now.runtime, Addresses: now.addresses, Leaving: now.leaving,
	})
	if err != nil {
		return fmt.Errorf("record the plan: %w", err)
	}
	w.recorded, w.recordedIn, w.damaged, w.noted = true, in, false, now
	return nil
}

// ensureRecord is record for a step that a full disk must not prevent: if there is a record with
// the plan, its notes may be older ones.
func (w *worker) ensureRecord(leaving bool) error {
	if w.plan == nil {
		if err := w.makePlan(); err != nil {
			return err
		}
	}
	err := w.record(leaving)
	if w.recorded && !w.damaged {
		return nil
	}
	return err
}

// noteLeaving notes that a pod leaves, before the first step of that is taken. An agent that starts
// without a feed would give the pod its rules back otherwise.
func (w *worker) noteLeaving(wanted ambient.Wanted) error {
	if wanted.Enrolled || wanted.Gone || !w.recorded || w.damaged || w.plan == nil {
		return nil
	}
	return w.ensureRecord(true)
}

// forgetRecord removes the record of a pod that has no rules any more.
func (w *worker) forgetRecord() error {
	if !w.recorded {
		return nil
	}
	if err := w.agent.options.Journal.Remove(attachment(w.uid)); err != nil {
		return fmt.Errorf("remove the record: %w", err)
	}
	w.recorded, w.damaged, w.noted = false, false, notes{}
	return nil
}
