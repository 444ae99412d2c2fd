// SPDX-License-Identifier: Apache-2.0

package podnews

import (
	"encoding/json"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// Presence is a line about the object that is removed only at the end of the installation.
type Presence struct {
	// Installed reports whether the object exists, as the API server last reported. It is nil in a
	// line about something else.
	Installed *bool `json:"installed,omitempty"`
}

// MaxPod is the maximum size of a pod as JSON. A larger pod is not reported, and the daemon asks
// for it.
const MaxPod = 48 << 10

// News is a line about one pod. Both fields are nil in a line about something else.
type News struct {
	// Pod is a pod as it is now.
	Pod *interception.Pod `json:"pod,omitempty"`
	// Gone names a pod whose earlier reports the daemon must no longer use.
	Gone *podsource.Ref `json:"gone,omitempty"`
}

// Of returns the line about a pod; a nil pod means that it was removed, or is not to be kept.
func Of(ref podsource.Ref, pod *interception.Pod) (News, error) {
	gone := News{Gone: &podsource.Ref{Namespace: ref.Namespace, Name: ref.Name}}
	if pod == nil {
		return gone, nil
	}
	news := News{Pod: pod}
	line, err := json.Marshal(news)
	if err != nil || len(line) > MaxPod {
		return gone, err
	}
	return news, nil
}
