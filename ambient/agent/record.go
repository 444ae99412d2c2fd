// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

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
	w.damaged, w.state.Err, w.counted = record.damage != nil, record.damage, true
	w.name(record.Namespace, record.Name)
	a.workers[uid] = w
	return nil
}

// record notes the plan, before anything of the pod is in the kernel: what is there has a record.
func (w *worker) record() error {
	if w.recorded && !w.damaged {
		return nil
	}
	err := w.agent.options.Journal.Write(journal.Record{
		Attachment: attachment(w.uid), Time: time.Now(), Planner: version.String(),
		Namespace: w.pod.Namespace, Name: w.pod.Name, UID: w.uid, NetnsID: w.namespace.ID(), Plan: w.plan,
	})
	if err != nil {
		return fmt.Errorf("record the plan: %w", err)
	}
	w.recorded, w.recordedIn, w.damaged = true, w.namespace.ID(), false
	return nil
}

// forgetRecord removes the record of a pod that has no rules any more.
func (w *worker) forgetRecord() error {
	if !w.recorded {
		return nil
	}
	if err := w.agent.options.Journal.Remove(attachment(w.uid)); err != nil {
		return fmt.Errorf("remove the record: %w", err)
	}
	w.recorded, w.damaged = false, false
	return nil
}
