// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/repair"
)

// Options say whose pods are kept captured, and how.
type Options struct {
	// Cluster is needed.
	Cluster Cluster
	// Informer knows the node's pods, as [Client.Informer] makes it. It is needed; its owner runs it.
	Informer cache.SharedIndexInformer
	// Select narrows them, where the informer has more pods than are to be looked after.
	Select Selection
	// Namespaces has pods compared with what was recorded, and repaired in place. Without it only validators speak, and pods
	// without one are never judged.
	Namespaces Namespaces
	// Criteria are what pods are judged by. Mesh and Node are needed; Observed is filled in for each pod.
	Criteria repair.Criteria
	// Policy is what is done. The zero value reports.
	Policy repair.Policy
	// Limits are about all that changes something; zero ones allow nothing, so that everything is reported. See [repair.DefaultLimits].
	Limits repair.Limits
	// Reports limits the events of reports, which come after each other beyond it. The zero value stands for ten at once, and one more
	// every six seconds. What is done about a pod has one event besides, whatever the limit.
	Reports repair.Limit
	// Resync is how long after the start, and then again and again, every pod is looked at anew, its namespace included: nothing tells when
	// a namespace loses its rules. The zero value stands for ten minutes.
	Resync time.Duration
	// ActAtStart has the policy in force at once for pods that were there when the controller started. Without it, what is wrong
	// with them and no validator has told of is reported only, until the first resync.
	ActAtStart bool
	// Timeout bounds each request to the API server; the zero value stands for ten seconds.
	Timeout time.Duration
	// Now is the clock; nil stands for the system's.
	Now func() time.Time
	// Component names the program in its events on pods (reportingComponent); empty stands for "cni-repair", as Istio's repair is called.
	Component string
	// OnOutcome is told what became of a pod, whenever something was done or tried, what is wrong with it is new, or its namespace can no
	// longer be looked at. It may be nil. It is called by several goroutines at once, and should be quick.
	OnOutcome func(Outcome)
	// OnStatus is called when [Controller.Status] has changed. It may be nil. Like OnOutcome, it should be quick.
	OnStatus func()
}

const (
	defaultResync  = 10 * time.Minute
	defaultTimeout = 10 * time.Second
	// tellAgain is how long the API server keeps an event, unless it is told otherwise.
	tellAgain = time.Hour
)

// ErrOptions means that options are missing, or contradict themselves.
var ErrOptions = errors.New("invalid options of a repair controller")

func (o Options) validate() error {
	var errs []error
	for _, need := range []struct {
		given bool
		name  string
	}{
		{o.Cluster != nil, "Cluster is needed"},
		{o.Informer != nil, "Informer is needed"},
		{o.Criteria.Mesh != nil, "Criteria.Mesh is needed: without it no pod is the mesh's"},
		{o.Criteria.Node != "", "Criteria.Node is needed: without it the pods of all nodes would be this one's"},
		{o.Resync >= 0 && o.Timeout >= 0, "Resync and Timeout aren't negative"},
	} {
		if !need.given {
			errs = append(errs, errors.New(need.name))
		}
	}
	errs = append(errs, o.Policy.Validate(), o.Limits.Validate(), o.Reports.Validate())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return nil
}

// withDefaults has what zero values stand for.
func (o Options) withDefaults() Options {
	o.Reports = cmp.Or(o.Reports, repair.Limit{Burst: 10, Every: 6 * time.Second})
	o.Resync = cmp.Or(o.Resync, defaultResync)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnOutcome == nil {
		o.OnOutcome = func(Outcome) {}
	}
	if o.OnStatus == nil {
		o.OnStatus = func() {}
	}
	return o
}

// Cluster is what a controller asks of the API server, besides its informer. It is safe for use by several goroutines. Errors of the API
// server are in the errors as k8s.io/apimachinery/pkg/api/errors knows them. [Client] is the one that speaks to an API server.
type Cluster interface {
	// Pod reads one pod as it is now, for those of which the informer keeps too little.
	Pod(ctx context.Context, namespace, name string) (repair.Pod, error)
	// Do labels, deletes or evicts the action's target, with UID and resourceVersion as preconditions. Other modes are an error.
	Do(ctx context.Context, action repair.Action) error
	// Tell puts an event on a pod. One that is there already is no error.
	Tell(ctx context.Context, event Event) error
}

// Event is told about a pod (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/).
type Event struct {
	// About is the pod.
	About repair.Target
	// Reason is a word in CamelCase, such as "DeleteBrokenPod".
	Reason string
	// Message is a sentence, of at most 1024 bytes.
	Message string
	// Node is the name of the node, and of who tells.
	Node string
	// Component names the program that tells, as [Options].Component does.
	Component string
}

// Namespaces knows the network namespaces of the node's pods, and what was recorded of them. It is safe for use by several goroutines, which
// never ask about the same pod at a time. Package repair/inplace has one.
type Namespaces interface {
	// Observe says what is known of a pod beyond its object, and changes nothing. What couldn't be found out is left out of the
	// observation, and the error says why; what is in the observation counts all the same: a record without a namespace, for example.
	// Pods that the mesh's policy leaves alone now are asked about, too, since a record may say that they were captured: without a
	// record nobody has to look for the namespace of such a pod.
	Observe(ctx context.Context, pod repair.Pod) (repair.Observation, error)
	// Repair puts the plan into the namespace of the very pod, sparing connections that live there, verifies it and records it. The plan is
	// that of the finding, which came from an observation a moment ago: what the namespace holds is looked at once more before anything
	// is changed. An error means that the pod is not known to be repaired; it says what was in the way, also where it was refused.
	Repair(ctx context.Context, pod repair.Pod, plan *interception.Plan) error
}
