// SPDX-License-Identifier: Apache-2.0

package podnews

import (
	"encoding/json"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// Presence is a line about the object that only the end of the installation removes.
type Presence struct {
	// Installed says whether the object is there, as the API server said last. Nil is a line about something else.
	Installed *bool `json:"installed,omitempty"`
}

// MaxPod is how many bytes a pod may have as JSON. The daemon is not told about a larger one, and asks.
const MaxPod = 48 << 10

// News is a line about one pod. Both fields are nil in a line about something else.
type News struct {
	// Pod is a pod as it is now.
	Pod *interception.Pod `json:"pod,omitempty"`
	// Gone names a pod about which the daemon must not answer any more from what it was told before.
	Gone *podsource.Ref `json:"gone,omitempty"`
}

// Of is the line about a pod; nil stands for one that is gone, or that is not to be kept.
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
