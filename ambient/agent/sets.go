// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/agent/internal/tally"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// families returns those that have a set each.
func families() []interception.Family {
	return []interception.Family{interception.IPv4, interception.IPv6}
}

// sets keeps the host's plan, and the pods' addresses in its sets.
type sets struct {
	options *Options
	changed chan struct{} // has a value if something has changed on the host
	entered chan struct{} // has a value if the last pod may have got into the sets
	tally   *tally.Tally  // of the rules and members

	looking sync.Mutex    // is held by a look at all members
	busy    sync.RWMutex  // edits share it, and what changes the plan excludes them
	edits   atomic.Uint64 // how many have begun; those under way hold busy

	mu    sync.Mutex
	known bool // has and owner are what was seen last, and edited since
	ready bool // and the plan is there
	// suspended means that no pod is in the mesh, by command, and the host has no rules.
	suspended bool
	has       map[interception.Family]bool
	branches  []ambient.Branch      // those of the plan
	owner     map[netip.Addr]string // UIDs
	// former are the pods from which another one has taken an address that it still has. They do not
	// take it back: the last one to get an address is the one that runs.
	former map[netip.Addr][]string
	// lost are the pods from which another program has taken a member, until keep tells of them.
	lost []string
	// missing are the members that were taken, until they are there again.
	missing map[netip.Addr]bool

	// applied is the fingerprint of the plan that the host had at the last look, empty if none, and
	// drifted reports that another program has changed it since. moved reports that no rules are there
	// that another dataplane has written. All are guarded by busy.
	applied string
	drifted bool
	moved   bool

	upstream upstreamHost
}

// hostKey is the key under which the host's namespace is watched. No pod has an empty UID.
const hostKey = ""

// calm is how long changes on the host are collected before they are looked at. The agent's own
// edits are among them.
const calm = 250 * time.Millisecond

// keep restores the host's plan, and reads the members: when something has changed on the host, and
// from time to time. After each time it calls read with the UIDs of the pods from which another
// program has taken a member, and with the members that have no owner, and removes those that read
// returns. It calls takeOver if the plan is there.
func (s *sets) keep(
	ctx context.Context, read func(lost []string, strange []netip.Addr) (remove []netip.Addr), takeOver func(context.Context) error,
) {
	if s.options.Host == nil {
		return
	}
	round := time.NewTicker(s.options.Round)
	defer round.Stop()
	var refreshed, uncounted, reported error
	var again <-chan time.Time // after a failure
	failures := roster.Retries()
	for look := true; ; {
		if look {
			uncounted = s.tally.Begin(ctx)
			refreshed = s.refresh(ctx) // the next pod that enters sees the failure, too
			again = afterFailure(&failures, refreshed)
			if remove := read(s.takeLost(), s.of("")); len(remove) > 0 {
				_ = s.evict(ctx, remove) // what fails is tried again in the next round
			}
		}
		err := refreshed
		if err == nil {
			err = takeOver(ctx)
		}
		if ctx.Err() == nil {
			reported = s.report(reported, cmp.Or(err, s.unnoticed(uncounted)))
		}
		if look = s.await(ctx, round.C, again) || refreshed != nil; ctx.Err() != nil {
			return
		}
	}
}

// await waits until there is something to do, and reports whether that is more than to take over.
func (s *sets) await(ctx context.Context, round, again <-chan time.Time) (look bool) {
	for {
		var count <-chan time.Time
		if next := s.tally.Next(); !next.IsZero() {
			count = time.After(time.Until(next))
		}
		select {
		case <-round:
			return true
		case <-again:
			return true
		case <-s.changed:
			wait(ctx, calm)
			return true
		case <-count:
			if s.tally.Changed(ctx) {
				wait(ctx, calm)
				return true
			}
		case <-s.entered:
			wait(ctx, calm)
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// afterFailure returns a channel that has a value when to look again; nil without a failure.
func afterFailure(failures *upkeep.Series, err error) <-chan time.Time {
	if err == nil {
		failures.Reset()
		return nil
	}
	return time.After(failures.Next(time.Now()))
}

// report tells of a failure unless it was reported last, and of its end. It returns what was
// reported last.
func (s *sets) report(last, err error) error {
	if same := err == nil && last == nil || err != nil && last != nil && err.Error() == last.Error(); !same && s.options.ObserveHost != nil {
		s.options.ObserveHost(err)
	}
	return err
}

// wait waits for some time, unless the context ends before.
func wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// nudge has keep look at the host soon.
func (s *sets) nudge() {
	select {
	case s.changed <- struct{}{}:
	default: // it is to look already
	}
}

func (s *sets) takeLost() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.lost
	s.lost = nil
	return lost
}

// findBranches returns the branches of some of the members, in the order of addresses.
func (s *sets) findBranches(members []netip.Addr) ([]ambient.Branch, error) {
	if !s.options.Branches {
		return nil, nil
	}
	return findBranches(s.options.Host, members)
}

// branch puts the branches of a pod that has come or gone into the host's plan, or out of it.
func (s *sets) branch(ctx context.Context, addresses []netip.Addr) error {
	if !s.options.Branches {
		return nil
	}
	s.mu.Lock()
	members := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return s.owner[a] == "" })
	known := slices.DeleteFunc(slices.Clone(s.branches), func(b ambient.Branch) bool { return !slices.Contains(addresses, b.Pod) })
	s.mu.Unlock()
	found, err := s.findBranches(members)
	if err != nil || slices.Equal(found, known) {
		return err
	}
	defer s.nudge() // keep goes by the new plan
	return s.refresh(ctx)
}

// holds reports whether a pod has all of these addresses in the sets, and no others. One that
// another pod has taken counts.
func (s *sets) holds(uid string, addresses []netip.Addr) bool {
	if s.options.Host == nil {
		return true
	}
	if len(s.others(uid, addresses)) > 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready && !slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		return s.has[interception.FamilyOf(a)] && s.owner[a] != uid && !slices.Contains(s.former[a], uid)
	})
}

// others returns the pod's members that are none of its addresses. While it has no address, none is
// out of place.
func (s *sets) others(uid string, addresses []netip.Addr) []netip.Addr {
	if len(addresses) == 0 {
		return nil
	}
	return slices.DeleteFunc(s.of(uid), func(a netip.Addr) bool { return slices.Contains(addresses, a) })
}

// holdsAny reports whether a pod may have an address in the sets.
func (s *sets) holdsAny(uid string) bool {
	return s.options.Host != nil && (!s.isKnown() || len(s.of(uid)) > 0)
}

func (s *sets) isKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

func (s *sets) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// uids returns the pods that have an address in the sets.
func (s *sets) uids() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]bool{}
	for _, uid := range s.owner {
		all[uid] = true
	}
	delete(all, "") // a member without an owner is another program's
	return all
}

func (s *sets) of(uid string) (addresses []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, owner := range s.owner {
		if owner == uid {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// ownOf returns the members of a pod, and those addresses of a record that no other pod has by now.
func (s *sets) ownOf(uid string, recorded []netip.Addr) (addresses []netip.Addr) {
	addresses = s.of(uid)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, address := range recorded {
		if s.owner[address] == "" {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// enter adds a pod's addresses, which it asks for when it knows the members, and removes those that
// the pod had before.
func (s *sets) enter(ctx context.Context, uid string, of func() []netip.Addr) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	addresses := of()
	others := s.others(uid, addresses)
	all := slices.Concat(addresses, others)
	err := s.edit(ctx, all, func(edit *interception.SetEdit, a netip.Addr) {
		if slices.Contains(others, a) {
			edit.Remove[a] = uid
		} else {
			edit.Add[a] = uid
		}
	})
	if err != nil {
		return err
	}
	return s.branch(ctx, all)
}

// evict removes members that another program has added, and that no pod has taken since.
func (s *sets) evict(ctx context.Context, strange []netip.Addr) error {
	return s.edit(ctx, strange, func(edit *interception.SetEdit, a netip.Addr) { edit.Remove[a] = "" })
}

// leave removes the addresses that are the pod's.
func (s *sets) leave(ctx context.Context, uid string) error {
	if err := s.learn(ctx); err != nil {
		return err
	}
	members := s.of(uid)
	if err := s.edit(ctx, members, func(edit *interception.SetEdit, a netip.Addr) { edit.Remove[a] = uid }); err != nil {
		return err
	}
	return s.branch(ctx, members)
}

// learn reads the members if they are not known. The host may refuse the plan meanwhile, which
// keeps no pod in the sets.
func (s *sets) learn(ctx context.Context) error {
	if s.isKnown() {
		return nil
	}
	if err := s.prepare(ctx); !s.isKnown() {
		return err
	}
	return nil
}

// prepare applies the plan and reads the members, unless that was done.
func (s *sets) prepare(ctx context.Context) error {
	if s.isReady() {
		return nil
	}
	defer s.nudge() // other pods may have lost members
	s.looking.Lock()
	defer s.looking.Unlock()
	if s.isReady() { // by another pod's look
		return nil
	}
	return s.refreshLocked(ctx)
}

// edit changes the set of each family that has one of the addresses.
func (s *sets) edit(ctx context.Context, addresses []netip.Addr, change func(*interception.SetEdit, netip.Addr)) error {
	s.busy.RLock()
	defer s.busy.RUnlock()
	s.edits.Add(1)
	for _, family := range families() {
		edit := interception.SetEdit{Add: map[netip.Addr]string{}, Remove: map[netip.Addr]string{}}
		for _, address := range addresses {
			if interception.FamilyOf(address) == family && s.keeps(family) {
				change(&edit, address)
			}
		}
		if len(edit.Add)+len(edit.Remove) == 0 {
			continue
		}
		if err := s.options.Sets.UpdateSet(ctx, s.options.Host, s.options.Owner, ambient.ProbeSet(family), edit); err != nil {
			s.doubt()
			return err
		}
		s.edited(edit)
	}
	return nil
}

// keeps reports whether the host has a set for a family.
func (s *sets) keeps(family interception.Family) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has[family]
}

// doubt makes the next edit look at the host first.
func (s *sets) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.ready = false, false
}

// edited notes an edit.
func (s *sets) edited(edit interception.SetEdit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.count(CountEdit, "add", len(edit.Add))
	s.options.count(CountEdit, "remove", len(edit.Remove))
	for address, owner := range edit.Remove {
		if has, is := s.owner[address]; is && has == owner {
			delete(s.owner, address)
			delete(s.former, address)
			if owner == "" {
				delete(s.missing, address)
				s.options.count(CountHealed, driftSets, 1)
			}
		}
	}
	for address, owner := range edit.Add {
		if before := s.owner[address]; before != "" && before != owner {
			s.former[address] = append(s.former[address], before)
		}
		s.owner[address] = owner
		if s.missing[address] {
			delete(s.missing, address)
			s.options.count(CountHealed, driftSets, 1)
		}
	}
}

func (s *sets) isSuspended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspended
}

// suspend removes the host's plan, which stays away until resume is called. It may be called again
// after an error.
func (s *sets) suspend(ctx context.Context) error {
	s.busy.Lock()
	defer s.busy.Unlock()
	if err := s.options.Dataplane.Remove(ctx, s.options.Host, s.options.Owner); err != nil {
		return err
	}
	s.edits.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspended, s.known, s.ready, s.applied, s.drifted, s.missing = true, true, true, "", false, nil
	s.owner, s.has, s.former = map[netip.Addr]string{}, map[interception.Family]bool{}, map[netip.Addr][]string{}
	s.branches = nil
	return nil
}

// resume has the plan applied again, with the next edit or look.
func (s *sets) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspended, s.known, s.ready = false, false, false
}
