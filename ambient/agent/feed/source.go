// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// Source knows the pods of the node: first it tells of all that there are, then of each change. One
// reader calls Next.
type Source interface {
	// Next waits for the next change. What is told again without a change costs no message. The
	// source waits by itself while it cannot reach the API server: an error ends the server.
	Next(ctx context.Context) (ambient.Change, error)
}

// Annotator writes the pods' status annotations. It is called from several goroutines, but for one
// pod from one at a time.
type Annotator interface {
	// Annotate gives the pod the status, or no such annotation with [ambient.NoStatus]. The pod has
	// its namespace, name and UID, and nothing else. It must not be another pod of the same name that
	// is annotated.
	//
	// After nil the request is done. After an error that wraps [ErrPodGone] it is dropped. After any
	// other error the agent asks again, with growing pauses, and reports the error's text. The context
	// ends after 30 s, or when the agent that has asked is gone.
	Annotate(ctx context.Context, pod interception.Pod, status ambient.Status) error
}

// ErrPodGone is what an [Annotator] returns for a pod that does not exist any more, or that another
// one of the same name has replaced.
var ErrPodGone = errors.New("the pod does not exist any more")
