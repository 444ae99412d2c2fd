// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// defaultLookWithin leaves the rest of the second for which a probe of the kubelet waits.
const defaultLookWithin = 500 * time.Millisecond

// Check has Look ask for the reason why a part isn't ready although it says that it is; empty when there is none. The check must end with
// its context, and nobody else waits for it.
func (s *State) Check(part string, check func(ctx context.Context) (reason string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition(part).check = check
}

// Look asks the checks of all parts that say they are ready, all at once, and returns when that is known or ctx has ended. There is
// one look at a time: who asks meanwhile waits for the end of that one.
func (s *State) Look(ctx context.Context) {
	s.mu.Lock()
	end := s.look
	if end == nil {
		end = make(chan struct{})
		s.look = end
		go s.lookAround(context.WithoutCancel(ctx), end)
	}
	s.mu.Unlock()
	select {
	case <-end:
	case <-ctx.Done():
	}
}

// lookAround asks, whether or not somebody still waits for the answer.
func (s *State) lookAround(ctx context.Context, end chan<- struct{}) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.LookWithin, defaultLookWithin))
	defer cancel()
	var group sync.WaitGroup
	for part, check := range s.checks() {
		group.Go(func() { s.find(part, check(ctx)) })
	}
	group.Wait()
	s.mu.Lock()
	s.look = nil
	s.mu.Unlock()
	s.tell()
	close(end)
}

// checks are those of the parts that say they are ready.
func (s *State) checks() map[string]func(context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	checks := map[string]func(context.Context) string{}
	for _, p := range s.parts {
		if p.check != nil && p.said == "" {
			checks[p.Part] = p.check
		}
	}
	return checks
}

// find records what a check has found.
func (s *State) find(part, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.condition(part)
	p.found = reason
	p.judge()
}
