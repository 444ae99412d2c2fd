// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"reflect"

	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/repair/controller"
)

// teller passes on what the informer says about pods. Most updates of a pod are about its status, and are kept back.
func teller(tell func(podsource.Ref, *interception.Pod)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if ref, pod, known := answerOf(object); known {
				tell(ref, pod)
			}
		},
		UpdateFunc: func(before, after any) {
			_, last, _ := answerOf(before)
			if ref, pod, known := answerOf(after); known && !reflect.DeepEqual(last, pod) {
				tell(ref, pod)
			}
		},
		DeleteFunc: func(object any) {
			if missed, found := object.(cache.DeletedFinalStateUnknown); found {
				object = missed.Obj
			}
			if ref, _, known := answerOf(object); known {
				tell(ref, nil)
			}
		},
	}
}

// answerOf is what is known about an object's pod; nil for one that is too large to be kept.
func answerOf(object any) (ref podsource.Ref, pod *interception.Pod, known bool) {
	o, isPod := object.(*controller.Object)
	if !isPod {
		return ref, nil, false
	}
	ref = podsource.Ref{Namespace: o.Namespace, Name: o.Name}
	if o.TooLarge {
		return ref, nil, true
	}
	answer := podOf(o)
	return ref, &answer, true
}

func podOf(o *controller.Object) interception.Pod {
	return o.Spec.Pod(o.Namespace, o.Name, string(o.UID), o.Labels, o.Annotations)
}
