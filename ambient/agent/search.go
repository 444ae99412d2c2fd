// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/meshcni/meshcni/interception/podnetns"
)

// searches look for the namespaces of pods, all that wait by one pass over the node's processes.
type searches struct {
	finder Finder

	mu      sync.Mutex
	waiting []*search
	busy    bool // a goroutine searches
}

// search is for one pod.
type search struct {
	pod     podnetns.Pod
	done    chan struct{} // closed when finding is set
	finding podnetns.Finding
}

// find returns a pod's namespace, which the caller closes. It joins the next pass. The context is
// that of all searches.
func (s *searches) find(ctx context.Context, pod podnetns.Pod) (*podnetns.Found, error) {
	own := &search{pod: pod, done: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, own)
	if !s.busy {
		s.busy = true
		go s.run(ctx)
	}
	s.mu.Unlock()
	<-own.done // the pass ends with the context
	return own.finding.Found, own.finding.Err
}

// run searches until no pod waits.
func (s *searches) run(ctx context.Context) {
	for {
		s.mu.Lock()
		batch := s.waiting
		s.waiting, s.busy = nil, len(batch) > 0
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		pods := make([]podnetns.Pod, len(batch))
		for i, one := range batch {
			pods[i] = one.pod
		}
		for i, finding := range s.finder.FindAll(ctx, pods) {
			batch[i].finding = finding
			close(batch[i].done)
		}
	}
}
