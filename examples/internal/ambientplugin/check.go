// SPDX-License-Identifier: Apache-2.0

package ambientplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/plugin"
)

// check looks at what the agent has observed of a pod, and changes nothing. A pod that the agent
// does not enrol, or that is checked while the agent is away, goes on.
func check(ctx context.Context, r plugin.Request, socket string) (_ interception.Decision, decided bool, _ error) {
	of := event.Selection{UID: r.Pod.UID}
	if of.UID == "" {
		of = event.Selection{Namespace: r.Pod.Namespace, Name: r.Pod.Name}
	}
	node, err := event.Pods(ctx, socket, of)
	if err != nil {
		r.Log.Warn("it is not known whether the pod is in the ambient mesh, and not checked", "error", err.Error())
		return interception.Decision{}, false, nil
	}
	for _, pod := range node.Pods {
		if !pod.Eligible {
			continue
		}
		if wrong := difference(pod); wrong != nil {
			return interception.Decision{}, false, &plugin.Error{
				Code: codeDrift, Step: "compare pod " + r.Pod.String() + " with what the agent of ambient mode observes", Err: wrong,
				Remedy: "the agent corrects it by itself: if it stays so, see install-cni ambient status " + r.Pod.String(),
			}
		}
		return interception.Decision{Reason: ReasonEnrolled, Detail: string(pod.Reason), OfPod: true}, true, nil
	}
	return interception.Decision{}, false, nil
}

// rulesPlanned is how the agent tells that a pod's rules are as planned.
const rulesPlanned = "planned"

// difference says what is not as wanted of a pod of the mesh; nil if all is.
func difference(pod event.PodState) error {
	switch {
	case pod.Step != "":
		return fmt.Errorf("step %q is not done: %s", pod.Step, cmp.Or(pod.Error, pod.Refusal, "it takes its time"))
	case !pod.Managed:
		return errors.New("the agent has not begun with it")
	case pod.Rules != rulesPlanned:
		return fmt.Errorf("its rules are %q, and should be %q", pod.Rules, rulesPlanned)
	}
	return nil
}
