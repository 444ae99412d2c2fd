// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"context"
	"errors"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/repair"
)

// Records observe pods by what the plugin recorded alone. They distinguish a pod that was started
// without the plugin from one that was captured at its start. Only a [Repairer] sees that a pod has
// lost its rules since. The embedded Records, which [podnetns.NewRecords] returns, must be set.
type Records struct {
	*podnetns.Records
}

// Observe returns what was recorded of a pod, or that it has no record. The error reports what
// cannot be read: then a pod without a record may have one.
func (r Records) Observe(_ context.Context, pod repair.Pod) (repair.Observation, error) {
	record, err := r.Record(refOf(pod))
	if record != nil && record.UID == pod.UID {
		left, unknown := r.LeftBehind(record)
		err = errors.Join(err, unknown)
		if left {
			record = nil
		}
	}
	return r.observed(pod, record, err), err
}

// observed returns an observation from the records alone. The error comes from reading them.
func (r Records) observed(pod repair.Pod, record *journal.Record, err error) repair.Observation {
	seen := repair.Observation{UID: pod.UID}
	if record != nil {
		seen.Record = &repair.Record{UID: record.UID, Time: record.Time, Planner: record.Planner, Plan: record.Plan}
	}
	seen.Unrecorded = r.HasJournal() && err == nil && (record == nil || record.UID != pod.UID)
	return seen
}

// Repair refuses: the records lead to no network namespace.
func (r Records) Repair(_ context.Context, pod repair.Pod, _ *interception.Plan) error {
	return &podnetns.RefusalError{
		Pod: refOf(pod), Obstacle: podnetns.ObstacleUnreadable, Detail: "network namespaces are not looked into here",
	}
}

// refOf returns the pod as package podnetns knows it.
func refOf(pod repair.Pod) podnetns.Pod {
	ref := podnetns.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, HostNetwork: pod.HostNetwork, IPs: pod.IPs}
	for _, status := range pod.Statuses {
		if status.ContainerID != "" {
			ref.Containers = append(ref.Containers, status.ContainerID)
		}
	}
	return ref
}
