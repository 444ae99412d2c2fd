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

// Options configure which pods are kept captured, and how.
type Options struct {
	// Cluster is required.
	Cluster Cluster
	// Informer knows the node's pods, as [Client.Informer] makes it. It is required; the caller
	// runs it.
	Informer cache.SharedIndexInformer
	// Select narrows the pods, if the informer has more than the controller handles.
	Select Selection
	// Namespaces compares pods with their records, and repairs them in place. Without it only
	// validators give evidence, and pods without one are never judged.
	Namespaces Namespaces
	// Criteria are what pods are judged by. Mesh and Node are required; Observed is filled in for
	// each pod.
	Criteria repair.Criteria
	// Policy is what to do about pods. The zero value reports.
	Policy repair.Policy
	// Limits apply to everything that changes something; zero limits allow nothing, so that
	// everything is reported. See [repair.DefaultLimits]. A new controller does not know what another
	// has just done: its first deletion or eviction waits for as long as Limits.Disruptions has
	// between two. The other limits begin anew.
	Limits repair.Limits
	// Reports limits the events of reports; those over the limit wait. The zero value stands for
	// ten at once, and one more every six seconds. An action on a pod has one event in addition,
	// regardless of the limit.
	Reports repair.Limit
	// Resync is the interval, from the start, at which every pod is looked at again, its namespace
	// included: nothing signals that a namespace has lost its rules. The zero value stands for ten
	// minutes.
	Resync time.Duration
	// ActAtStart applies the policy at once to pods that exist when the controller starts. Without
	// it, a fault in such a pod that no validator has reported is itself only reported until the
	// first resync.
	ActAtStart bool
	// Timeout bounds each request to the API server; the zero value stands for ten seconds.
	Timeout time.Duration
	// NamespaceTimeout bounds each look at a pod's namespace, and each repair; the zero value stands
	// for a minute. A pod that keeps its rules changing could otherwise keep others waiting.
	NamespaceTimeout time.Duration
	// Now is the clock; nil stands for the system's.
	Now func() time.Time
	// Component names the program in its events on pods (reportingComponent); empty stands for
	// "cni-repair", as Istio's repair is called.
	Component string
	// OnOutcome receives the outcome for a pod whenever something was done or tried, a new fault
	// was found, or its namespace can no longer be looked at. It may be nil. Several goroutines
	// call it at once, and it should return quickly.
	OnOutcome func(Outcome)
	// OnStatus is called when [Controller.Status] has changed. It may be nil. Like OnOutcome, it
	// should return quickly.
	OnStatus func()
}

const (
	defaultResync  = 10 * time.Minute
	defaultTimeout = 10 * time.Second
	// defaultNamespaceTimeout leaves time for the dataplane to end a program that goes on and on
	// (30 seconds in package iptables), and to say which.
	defaultNamespaceTimeout = time.Minute
	// reportAgain is how long the API server keeps an event, unless it is configured otherwise.
	reportAgain = time.Hour
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
		{o.Resync >= 0 && o.Timeout >= 0 && o.NamespaceTimeout >= 0, "Resync, Timeout and NamespaceTimeout aren't negative"},
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

func (o Options) withDefaults() Options {
	o.Reports = cmp.Or(o.Reports, repair.Limit{Burst: 10, Every: 6 * time.Second})
	o.Resync = cmp.Or(o.Resync, defaultResync)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.NamespaceTimeout = cmp.Or(o.NamespaceTimeout, defaultNamespaceTimeout)
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

// Cluster is what a controller needs from the API server besides its informer. It is safe for
// concurrent use. Its errors wrap those of the API server, so that
// k8s.io/apimachinery/pkg/api/errors recognises them. [Client] implements it.
type Cluster interface {
	// Pod reads one pod as it is now, for pods of which the informer keeps too little.
	Pod(ctx context.Context, namespace, name string) (repair.Pod, error)
	// Do labels, deletes or evicts the action's target, with UID and resourceVersion as
	// preconditions. Other modes are an error.
	Do(ctx context.Context, action repair.Action) error
	// CreateEvent creates an event on a pod. It is no error if the event exists already.
	CreateEvent(ctx context.Context, event Event) error
}

// Event is a report on a pod
// (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/).
type Event struct {
	// About is the pod.
	About repair.Target
	// Reason is a word in CamelCase, such as "DeleteBrokenPod".
	Reason string
	// Message is a sentence of at most 1024 bytes.
	Message string
	// Node is the name of the node, which is also the reporting instance.
	Node string
	// Component names the reporting program; see Component in [Options].
	Component string
}

// Namespaces knows the network namespaces of the node's pods, and their records. It is safe for
// concurrent use, if no two goroutines use it for the same pod at a time. Its methods return soon
// after the end of ctx. Package repair/inplace has an implementation.
type Namespaces interface {
	// Observe returns what is known of a pod beyond its object, and changes nothing. It leaves out
	// what it could not find out, and returns the reason as the error; the rest of the observation
	// counts all the same, for example a record without a namespace. The controller also asks about
	// pods that the mesh's policy now leaves alone, since a record may show that they were
	// captured: without a record, Observe need not look for their namespace.
	Observe(ctx context.Context, pod repair.Pod) (repair.Observation, error)
	// Repair restores the plan in the namespace of this very pod, spares its connections, verifies
	// the result and records it. The plan comes from the finding, which is based on a recent
	// observation: Repair looks at the namespace once more before it changes anything. An error
	// means that the pod is not known to be repaired; it reports the obstacle, also if the repair
	// was refused.
	Repair(ctx context.Context, pod repair.Pod, plan *interception.Plan) error
}
