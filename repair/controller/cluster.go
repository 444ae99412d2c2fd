// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/meshcni/meshcni/repair"
)

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
