// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"log/slog"
	"time"
)

// AgentSocket is the name of the node agent's socket in its run directory.
const AgentSocket = "agent.sock"

// LogEntry is one line of a plugin's log.
type LogEntry struct {
	// Time is when it was written.
	Time time.Time `json:"time"`
	// Level is how much it matters; as JSON "DEBUG", "INFO", "WARN" or "ERROR".
	Level slog.Level `json:"level"`
	// Message is the line itself.
	Message string `json:"message"`
	// Attributes are what it is about, such as "pod".
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Result is what came of one command of a plugin, for the agent's journal and metrics. All but Time
// and Command may be empty.
type Result struct {
	// Time is when the command began.
	Time time.Time `json:"time"`
	// Command is "ADD", "DEL", "CHECK", "GC" or "STATUS".
	Command string `json:"command"`
	// ContainerID is the container's (CNI_CONTAINERID).
	ContainerID string `json:"containerID,omitempty"`
	// Namespace, Name and UID are the pod's.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Captured, Reason and Detail are what was decided about the pod; Reason is empty when nothing
	// was.
	Captured bool   `json:"captured"`
	Reason   string `json:"reason,omitempty"`
	Detail   string `json:"detail,omitempty"`
	// Source is the name of the source that knew the pod, as in [Answer].
	Source string `json:"source,omitempty"`
	// Plan is the fingerprint of the plan that was applied.
	Plan string `json:"plan,omitempty"`
	// Warnings are about settings of the pod that have no effect.
	Warnings []string `json:"warnings,omitempty"`
	// Stages are the parts of the command, in order.
	Stages []Stage `json:"stages,omitempty"`
	// Error is why the command failed; nil when it didn't.
	Error *ResultError `json:"error,omitempty"`
}

// Stage is a part of a command.
type Stage struct {
	// Name is what was done, such as "source" or "apply".
	Name string `json:"name"`
	// Milliseconds is how long that took.
	Milliseconds float64 `json:"milliseconds"`
}

// ResultError is an error of the CNI specification, section "Error".
type ResultError struct {
	Code    uint   `json:"code"`
	Message string `json:"message"`
	Details string `json:"details,omitempty"`
}

// AgentStatus is how the agent is doing.
type AgentStatus struct {
	// Ready says whether the agent could answer for any pod now.
	Ready bool `json:"ready"`
	// Reason says why it is not ready.
	Reason string `json:"reason,omitempty"`
	// Version is the agent's own.
	Version string `json:"version,omitempty"`
	// Server is how the API server answers the agent; nil if the agent doesn't say.
	Server *ServerStatus `json:"server,omitempty"`
}

// ServerStatus is how an API server answers.
type ServerStatus struct {
	// Age is the number of seconds since it last answered.
	Age float64 `json:"age"`
	// Failure is the kind of the last failure since then, in a word, and Failures is how many there
	// were.
	Failure  string `json:"failure,omitempty"`
	Failures int    `json:"failures,omitempty"`
}

// The bodies of requests.
type (
	logsRequest struct {
		Entries []LogEntry `json:"entries"`
	}
	resultsRequest struct {
		Results []Result   `json:"results"`
		Entries []LogEntry `json:"entries,omitempty"`
	}
)

// listed returns a list that JSON writes as [] even if it is nil.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
