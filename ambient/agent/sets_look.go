// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
)

// calmLooks is how often refresh looks at the members beside edits, until it makes edits wait.
const calmLooks = 3

// refresh applies the host's plan if it is not there, and reads the members. What it has seen
// counts if no member was edited meanwhile.
func (s *sets) refresh(ctx context.Context) error {
	s.looking.Lock()
	defer s.looking.Unlock()
	return s.refreshLocked(ctx)
}

func (s *sets) refreshLocked(ctx context.Context) error {
	for range calmLooks {
		if s.isSuspended() {
			return nil
		}
		before := s.countEdits()
		seen := s.look(ctx)
		if done, err := s.adoptUnlessEdited(ctx, before, seen); done {
			return err
		}
	}
	s.busy.Lock()
	defer s.busy.Unlock()
	return s.adopt(ctx, s.look(ctx))
}

// countEdits returns how many edits there have been, at a moment when none is under way.
func (s *sets) countEdits() uint64 {
	s.busy.Lock()
	defer s.busy.Unlock()
	return s.edits.Load()
}

func (s *sets) adoptUnlessEdited(ctx context.Context, before uint64, seen hostState) (done bool, err error) {
	s.busy.Lock()
	defer s.busy.Unlock()
	if s.edits.Load() != before {
		return false, nil
	}
	return true, s.adopt(ctx, seen)
}

// hostState is what was seen on the host.
type hostState struct {
	facts interception.Facts
	interception.State
	err error
}

// look observes the host.
func (s *sets) look(ctx context.Context) (seen hostState) {
	o := s.options
	if seen.facts, seen.err = netfacts.Read(o.Host); seen.err == nil {
		seen.State, seen.err = o.Dataplane.Observe(ctx, o.Host, o.Owner)
	}
	return seen
}

// adopt takes over what was seen of the members, and applies the host's plan if it was not there.
// The members count also where the plan is refused: pods leave the sets all the same. The caller
// holds busy.
func (s *sets) adopt(ctx context.Context, seen hostState) error {
	if s.isSuspended() {
		return nil
	}
	plan, branches, err := s.restore(ctx, seen)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known, s.ready = seen.err == nil, err == nil; s.known {
		s.takeMembers(seen.State)
	}
	if err != nil {
		return fmt.Errorf("keep the host's rules: %w", err)
	}
	s.branches = branches
	for _, family := range families() {
		_, s.has[family] = plan.Set(ambient.ProbeSet(family))
	}
	return nil
}

// takeMembers takes over the sets that were seen, and their members, which Apply keeps. The caller
// holds mu.
func (s *sets) takeMembers(seen interception.State) {
	before := s.owner
	s.owner = map[netip.Addr]string{}
	for _, members := range seen.Owners {
		maps.Copy(s.owner, members)
	}
	s.countLost(before)
	if s.has == nil {
		s.has = map[interception.Family]bool{}
	}
	maps.DeleteFunc(s.former, func(a netip.Addr, _ []string) bool { return s.owner[a] != before[a] })
	for _, family := range families() {
		// A set that is gone was there: an edit of it has to fail.
		s.has[family] = s.has[family] || slices.ContainsFunc(seen.Objects, func(o interception.Object) bool {
			set, is := o.(interception.Set)
			return is && set.Name == ambient.ProbeSet(family)
		})
	}
}

// countLost notes and counts what other programs have done to the members since there were those
// before. The caller holds mu.
func (s *sets) countLost(before map[netip.Addr]string) {
	for address, uid := range before {
		if s.owner[address] != uid {
			if s.missing == nil {
				s.missing = map[netip.Addr]bool{}
			}
			s.lost, s.missing[address] = append(s.lost, uid), true
			s.options.count(CountDrift, driftSets, 1)
		}
	}
	for address, uid := range s.owner {
		if _, known := before[address]; uid == "" && !known {
			s.options.count(CountDrift, driftSets, 1)
		}
	}
}

// restore makes the host hold its plan, which it returns. It held what was seen before.
func (s *sets) restore(ctx context.Context, seen hostState) (plan *interception.Plan, branches []ambient.Branch, err error) {
	if seen.err != nil {
		return nil, nil, seen.err
	}
	var members []netip.Addr
	for _, of := range seen.Owners {
		members = slices.AppendSeq(members, maps.Keys(of))
	}
	if branches, err = s.findBranches(members); err != nil {
		return nil, nil, err
	}
	if plan, err = ambient.HostPlan(s.options.Numbers, seen.facts, s.options.Owner, branches...); err == nil {
		err = s.applyHost(ctx, plan, seen.State)
	}
	return plan, branches, err
}

// applyHost applies the host's plan where it differs from what was seen, and counts that as drift
// if the same plan was applied before.
func (s *sets) applyHost(ctx context.Context, plan *interception.Plan, seen interception.State) error {
	o, fingerprint := s.options, plan.Fingerprint()
	stands := !differs(plan, seen)
	if !stands && s.applied == fingerprint {
		s.applied, s.drifted = "", true
		o.count(CountDrift, driftHost, 1)
	}
	if stands && !s.moved {
		former, err := o.hasFormer(ctx, o.Host)
		if err != nil {
			return err
		}
		stands = !former
	}
	if !stands {
		if err := o.Dataplane.Apply(ctx, o.Host, plan); err != nil {
			return err
		}
		s.tally.Recount(ctx)
	}
	if s.drifted {
		o.count(CountHealed, driftHost, 1)
	}
	s.applied, s.drifted, s.moved = fingerprint, false, true
	return nil
}
