// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"

	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
)

// podOf returns the pod in the form that package repair uses.
func podOf(o *nodepods.Object) repair.Pod {
	pod := repair.Pod{
		Pod:             o.Pod(),
		ResourceVersion: o.ResourceVersion, NodeName: o.Spec.NodeName,
		RestartPolicy: repair.RestartPolicy(o.Spec.RestartPolicy), Phase: repair.Phase(o.Status.Phase), IPs: o.Addresses(),
	}
	if o.DeletionTimestamp != nil {
		pod.DeletionTimestamp = o.DeletionTimestamp.Time
	}
	for _, owner := range o.OwnerReferences {
		pod.Owners = append(pod.Owners, repair.OwnerReference{
			Kind: owner.Kind, Name: owner.Name, UID: string(owner.UID), Controller: owner.Controller != nil && *owner.Controller,
		})
	}
	for _, c := range o.Status.Conditions {
		pod.Conditions = append(pod.Conditions, repair.Condition(c))
	}
	for _, s := range o.Status.InitContainerStatuses {
		pod.Statuses = append(pod.Statuses, statusOf(s, true))
	}
	for _, s := range o.Status.ContainerStatuses {
		pod.Statuses = append(pod.Statuses, statusOf(s, false))
	}
	return pod
}

func statusOf(s nodepods.ContainerStatus, initial bool) repair.ContainerStatus {
	_, id, _ := strings.Cut(s.ContainerID, "://")
	return repair.ContainerStatus{
		Name: s.Name, ContainerID: id, Init: initial, Started: s.Started,
		State: stateOf(s.State), Last: stateOf(s.LastState),
	}
}

func stateOf(s nodepods.ContainerState) repair.ContainerState {
	state := repair.ContainerState{Running: s.Running != nil}
	if s.Waiting != nil {
		state.Waiting = s.Waiting.Reason
	}
	if end := s.Terminated; end != nil {
		state.Terminated = &repair.Termination{
			ExitCode: end.ExitCode, Reason: end.Reason, Message: end.Message, FinishedAt: end.FinishedAt.Time,
		}
	}
	return state
}
