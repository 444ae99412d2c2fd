// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient/agent"
)

// reporter reports how far the agent is with each pod, as lines of JSON.
type reporter struct {
	log *slog.Logger

	mu sync.Mutex
	to io.Writer
}

// podLine is a line about a pod.
type podLine struct {
	UID       string    `json:"uid"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Wanted    bool      `json:"wanted"`
	Rules     string    `json:"rules,omitempty"`
	Proxy     string    `json:"proxy,omitempty"`
	Status    string    `json:"status,omitempty"`
	Step      string    `json:"step,omitempty"`
	Error     string    `json:"error,omitempty"`
	Since     time.Time `json:"since"`
}

// pod reports what the agent says of a pod.
func (r *reporter) pod(p agent.Pod) {
	line := podLine{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name, Wanted: p.Wanted.Enrolled, Rules: p.Seen.Rules.String(), Proxy: p.Seen.Proxy.String(),
		Status: string(p.Seen.Status), Step: string(p.Step), Since: p.Since,
	}
	if p.Err != nil {
		line.Error = p.Err.Error()
	}
	text, err := json.Marshal(struct {
		Pod podLine `json:"pod"`
	}{line})
	if err == nil {
		r.mu.Lock()
		_, err = r.to.Write(append(text, '\n'))
		r.mu.Unlock()
	}
	if err != nil {
		r.log.Warn("can't report how far a pod is", "pod", p.UID, "error", err)
	}
}
