// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// podFeed stands in for node-watcher: it tells node-ambient of the node's pods, and takes over what
// that has written to them. It also follows node-ambient's reports.
type podFeed struct {
	changes chan ambient.Change

	mu       sync.Mutex
	statuses map[string]ambient.Status // by UID, as last requested
	steps    map[string]ambient.Step   // by UID, as last reported
	problems map[string]string         // by UID, likewise
	complete bool                      // the proxy knows all pods
	ended    error                     // why no report will come; nil while node-ambient runs
	news     chan struct{}             // closed when one of these changes
}

func newPodFeed() *podFeed {
	return &podFeed{
		changes: make(chan ambient.Change, 1), statuses: map[string]ambient.Status{}, steps: map[string]ambient.Step{},
		problems: map[string]string{}, news: make(chan struct{}),
	}
}

// Next implements feed.Source.
func (f *podFeed) Next(ctx context.Context) (ambient.Change, error) {
	select {
	case change := <-f.changes:
		return change, nil
	case <-ctx.Done():
		return ambient.Change{}, ctx.Err()
	}
}

// Annotate implements feed.Annotator.
func (f *podFeed) Annotate(_ context.Context, pod interception.Pod, status ambient.Status) error {
	f.note(func() { f.statuses[pod.UID] = status })
	return nil
}

// note changes what is known.
func (f *podFeed) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.news)
	f.news = make(chan struct{})
}

// errReportsEnd is the reason when node-ambient's output ends.
var errReportsEnd = errors.New("node-ambient has ended")

// read follows node-ambient's reports until they end.
func (f *podFeed) read(reports io.Reader) {
	lines := json.NewDecoder(reports)
	for {
		var line struct {
			Pod struct {
				UID, Error string
				Step       ambient.Step
			}
		}
		if err := lines.Decode(&line); err != nil {
			if errors.Is(err, io.EOF) {
				err = errReportsEnd
			}
			f.note(func() { f.ended = fmt.Errorf("read the reports of node-ambient: %w", err) })
			return
		}
		f.note(func() { f.steps[line.Pod.UID], f.problems[line.Pod.UID] = line.Pod.Step, line.Pod.Error })
	}
}

// settledWithin limits how long node-ambient may take for a step.
const settledWithin = 30 * time.Second

// await waits until a condition holds of what is known, and returns how long that took.
func (f *podFeed) await(ctx context.Context, what string, holds func() bool) (time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, settledWithin)
	defer cancel()
	for {
		f.mu.Lock()
		news, done, ended := f.news, holds(), f.ended
		state := fmt.Sprintf("statuses %v, steps %v, errors %v", maps.Clone(f.statuses), maps.Clone(f.steps), maps.Clone(f.problems))
		f.mu.Unlock()
		if done {
			return time.Since(began), nil
		}
		if ended != nil {
			return 0, ended
		}
		select {
		case <-news:
		case <-ctx.Done():
			return 0, fmt.Errorf("wait until %s: %w; pods by UID: %s", what, ctx.Err(), state)
		}
	}
}

// haveStatus returns a condition: all these pods have the status.
func (f *podFeed) haveStatus(status ambient.Status, uids ...string) func() bool {
	return func() bool {
		for _, uid := range uids {
			if got, told := f.statuses[uid]; !told || got != status {
				return false
			}
		}
		return true
	}
}

// drain returns a condition: node-ambient waits for the end of these pods' connections.
func (f *podFeed) drain(uids ...string) func() bool {
	return func() bool {
		for _, uid := range uids {
			if f.steps[uid] != ambient.StepAwaitDrained {
				return false
			}
		}
		return true
	}
}
