// SPDX-License-Identifier: Apache-2.0

package repairconf

import "github.com/meshcni/meshcni/repair"

// Status is how repair is going, as numbers.
type Status struct {
	// Scanned says that all pods of the start were looked at.
	Scanned bool `json:"scanned"`
	// Pods are how many there are of each verdict.
	Pods map[repair.Verdict]int `json:"pods,omitempty"`
	// Done is how often each mode had each result, since the process was started.
	Done []Count `json:"done,omitempty"`
	// Waiting are the pods that wait for a limit, Unseen those that couldn't be looked at.
	Waiting int `json:"waiting,omitempty"`
	Unseen  int `json:"unseen,omitempty"`
	// Untold is how often an event couldn't be put on a pod.
	Untold int `json:"untold,omitempty"`
	// Forbidden is what the role lacks a verb for, and what the API server said first: by a mode, or [Telling].
	Forbidden map[string]string `json:"forbidden,omitempty"`
}

// Telling is in [Status].Forbidden where no event may be put on a pod.
const Telling = "event"

// Count is how often a mode had a result.
type Count struct {
	Mode   repair.Mode `json:"mode"`
	Result string      `json:"result"`
	Times  int         `json:"times"`
}

// Line is a line that has a status.
type Line struct {
	Repair *Status `json:"repair"`
}
