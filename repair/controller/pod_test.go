// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

const object = `{
  "apiVersion": "v1", "kind": "Pod",
  "metadata": {
    "namespace": "shop", "name": "web-0", "uid": "7f0b", "resourceVersion": "42", "labels": {"app": "web"}, "annotations": {"a": "b"},
    "deletionTimestamp": "2026-03-04T05:06:07Z",
    "ownerReferences": [
      {"apiVersion": "example.com/v1", "kind": "Fleet", "name": "f", "uid": "1"},
      {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "2", "controller": true}
    ]
  },
  "spec": {
    "nodeName": "a", "restartPolicy": "Never", "hostNetwork": true, "securityContext": {"runAsUser": 7},
    "initContainers": [{"name": "init", "restartPolicy": "Always"}], "containers": [{"name": "app"}]
  },
  "status": {
    "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
    "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
    "initContainerStatuses": [{
      "name": "init", "started": true, "restartCount": 2, "containerID": "containerd://0a1b", "state": {"running": {"startedAt": "2026-03-04T05:06:07Z"}},
      "lastState": {"terminated": {"exitCode": 126, "reason": "Error", "message": "m", "finishedAt": "2026-03-04T05:06:06Z"}}
    }],
    "containerStatuses": [{"name": "app", "started": null, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {}}]
  }
}`

// TestObject has every field that counts.
func TestObject(t *testing.T) {
	t.Parallel()
	var o nodepods.Object
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	seven := int64(7)
	want := repair.Pod{
		Pod: interception.Pod{
			Namespace: "shop", Name: "web-0", UID: "7f0b", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"},
			HostNetwork: true, RunAsUser: &seven, Containers: []interception.Container{
				{Name: "init", Init: true, RestartPolicy: "Always", Env: map[string]string{}}, {Name: "app", Env: map[string]string{}},
			},
		},
		ResourceVersion: "42", NodeName: "a", RestartPolicy: repair.RestartNever, Phase: repair.PhaseRunning,
		DeletionTimestamp: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		Owners:            []repair.OwnerReference{{Kind: "Fleet", Name: "f", UID: "1"}, {Kind: "ReplicaSet", Name: "web", UID: "2", Controller: true}},
		IPs:               []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		Conditions:        []repair.Condition{{Type: "Ready", Status: "False", Reason: "ContainersNotReady"}},
		Statuses: []repair.ContainerStatus{
			{
				Name: "init", ContainerID: "0a1b", Init: true, Started: true, State: repair.ContainerState{Running: true},
				Last: repair.ContainerState{Terminated: &repair.Termination{
					ExitCode: 126, Reason: "Error", Message: "m", FinishedAt: time.Date(2026, 3, 4, 5, 6, 6, 0, time.UTC),
				}},
			},
			{Name: "app", State: repair.ContainerState{Waiting: "CrashLoopBackOff"}},
		},
	}
	if diff := cmp.Diff(want, controller.PodOf(&o), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
