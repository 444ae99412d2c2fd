// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nodepods"
)

// pod returns the pod that has the name now; nil if none has.
func (c *Controller) pod(key string) *nodepods.Object {
	object, found, err := c.options.Pods.GetStore().GetByKey(key)
	o, isPod := object.(*nodepods.Object)
	if err != nil || !found || !isPod {
		return nil
	}
	return o
}

// told returns the pod in the form that package ambient uses, without containers, which it does not
// read.
func (c *Controller) told(o *nodepods.Object) ambient.Pod {
	pod := ambient.Pod{
		Pod: interception.Pod{
			Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Labels: o.Labels, Annotations: o.Annotations,
			ServiceAccount: o.Spec.ServiceAccount, HostNetwork: o.Spec.HostNetwork,
		},
		Phase: o.Status.Phase, Addresses: o.Addresses(),
	}
	if c.options.Policy.IsProxy(pod) {
		pod.Created, pod.Ready = o.CreationTimestamp.UTC(), o.Ready()
	}
	return pod
}

// samePod reports whether an update changes nothing that is told. Most are about conditions and
// containers.
func (c *Controller) samePod(before, after any) bool {
	a, isOne := before.(*nodepods.Object)
	b, isTwo := after.(*nodepods.Object)
	return isOne && isTwo && a.UID == b.UID && a.Status.Phase == b.Status.Phase && slices.Equal(a.Status.PodIPs, b.Status.PodIPs) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && c.told(a).Ready == c.told(b).Ready
}
