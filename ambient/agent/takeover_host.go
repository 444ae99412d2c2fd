// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// takeOverHost removes the rules of Istio's own agent from the host, once all pods of the mesh are
// in the agent's sets: until then probes of some reach them by the former rules. It returns why it
// could not, and does nothing before the time to try again.
func (a *Agent) takeOverHost(ctx context.Context) error {
	if !a.sets.mayTakeOver() || !a.allInSets() {
		return a.sets.refused()
	}
	err := a.options.takeOver(ctx, a.options.Host, upstream.RecogniseHost)
	if err == nil {
		err = a.options.removeHostSets(ctx)
	}
	a.sets.tookOver(err)
	return err
}

// setRemover removes ipsets that no rule names. The dataplane of package iptables does.
type setRemover interface {
	RemoveUnusedSets(ctx context.Context, ns *interception.Netns, names ...string) error
}

// removeHostSets removes the ipsets of Istio's own agent from the host if its rules went before,
// and the agent that removed them was ended right then.
func (o *Options) removeHostSets(ctx context.Context) error {
	for _, d := range o.TakeOver {
		if remover, can := d.(setRemover); can {
			if err := remover.RemoveUnusedSets(ctx, o.Host, upstream.HostSets()...); err != nil {
				return err
			}
		}
	}
	return nil
}

// allInSets reports whether the feed is complete, and each pod that is in the mesh, or has not left
// it yet, is in the host's sets.
func (a *Agent) allInSets() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.roster.Complete {
		return false
	}
	for uid, pod := range a.roster.Pods {
		decision, known := a.decide(uid)
		if pod.Finished() || known && !decision.Capture && a.workers[uid] == nil { // one that leaves has a worker
			continue
		}
		if w := a.workers[uid]; w == nil || !w.current().Seen.InSets {
			return false
		}
	}
	return true
}

// upstreamHost is what is left of Istio's own agent on the host. The sets' mu guards it.
type upstreamHost struct {
	gone     bool // and was looked for
	err      error
	failures upkeep.Series
	again    time.Time // when to try again after err
}

// nudgeToTakeOver makes keep find out soon whether all pods are in the sets, as long as rules of
// Istio's own agent may be on the host.
func (s *sets) nudgeToTakeOver() {
	if !s.mayTakeOver() {
		return
	}
	select {
	case s.entered <- struct{}{}:
	default: // it is to find out already
	}
}

// mayTakeOver reports whether rules of Istio's own agent may be on the host, and it is time to
// remove them.
func (s *sets) mayTakeOver() bool {
	if s.options.Host == nil || len(s.options.TakeOver) == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.upstream.gone && !s.suspended && !time.Now().Before(s.upstream.again)
}

// refused returns why the rules of Istio's own agent are still there.
func (s *sets) refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.upstream.err
}

// tookOver notes that the rules of Istio's own agent are gone or, with an error, that this is to be
// tried again later.
func (s *sets) tookOver(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upstream.gone, s.upstream.err = err == nil, err
	if err != nil {
		now := time.Now()
		pause := s.upstream.failures.Next(now)
		s.upstream.again = now.Add(pause)
		time.AfterFunc(pause, s.nudge)
	}
}
