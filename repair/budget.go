// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Limit is how often something may be done: Burst times at once, and once more after each Every.
// The zero value allows nothing; with a Burst and an Every of 0 there is no limit.
type Limit struct {
	// Burst is at most 10,000.
	Burst int
	// Every is at most a week.
	Every time.Duration
}

const (
	mostBurst = 10_000
	mostEvery = 7 * 24 * time.Hour
)

// Validate returns an error for a limit that is out of range. Such a limit allows nothing.
func (l Limit) Validate() error {
	switch {
	case l.Burst < 0 || l.Burst > mostBurst:
		return fmt.Errorf("%w: a burst of %d: name one of 0 to %d", ErrPolicy, l.Burst, mostBurst)
	case l.Every < 0 || l.Every > mostEvery:
		return fmt.Errorf("%w: once every %s: name a time of 0 to %s", ErrPolicy, l.Every, mostEvery)
	default:
		return nil
	}
}

// Limits bound the damage of a wrong policy, a wrong diagnosis or a pod that cannot be repaired.
// Zero limits allow nothing.
type Limits struct {
	// Writes applies to everything that changes something: labels, deletions, evictions and repairs
	// in place.
	Writes Limit
	// Disruptions applies to deletions and evictions, which also count as writes.
	Disruptions Limit
	// PerOwner applies to deletions and evictions of the pods of one controller: if every pod that
	// it creates is broken again, deletion does not help. A pod without a controller is its own
	// owner.
	PerOwner Limit
	// PerPod applies to all writes to one pod.
	PerPod Limit
}

// The names of the limits in a [LimitError].
const (
	LimitWrites      = "writes"
	LimitDisruptions = "disruptions"
	LimitPerOwner    = "per owner"
	LimitPerPod      = "per pod"
)

// Validate returns an error with every mistake in the limits. errors.Is(err, ErrPolicy) holds for
// the error.
func (l Limits) Validate() error {
	var errs []error
	for _, named := range []struct {
		name  string
		limit Limit
	}{{LimitWrites, l.Writes}, {LimitDisruptions, l.Disruptions}, {LimitPerOwner, l.PerOwner}, {LimitPerPod, l.PerPod}} {
		if err := named.limit.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("limit %s: %w", named.name, err))
		}
	}
	return errors.Join(errs...)
}

// DefaultLimits returns limits for one node: ten writes at once and one more every ten seconds; of
// these, three deletions or evictions at once and one more a minute, one a minute for each owner;
// and one write to a pod a minute.
func DefaultLimits() Limits {
	return Limits{
		Writes:      Limit{Burst: 10, Every: 10 * time.Second},
		Disruptions: Limit{Burst: 3, Every: time.Minute},
		PerOwner:    Limit{Burst: 1, Every: time.Minute},
		PerPod:      Limit{Burst: 1, Every: time.Minute},
	}
}

// Budget is what is left of limits. It is a value: [Budget.Take] returns another, and leaves it as
// it was. The zero value allows nothing. It remembers owners and pods only until what they took is
// restored, so the limit on all writes bounds its size.
type Budget struct {
	limits Limits
	used   map[string]bucket
}

// NewBudget returns a full budget.
func NewBudget(limits Limits) Budget { return Budget{limits: limits} }

// WithoutDisruptions returns the budget with all deletions and evictions taken at that time. It is
// for the start of a process, which does not know how many the one before it has just taken.
func (b Budget) WithoutDisruptions(now time.Time) Budget {
	limit, next := b.limits.Disruptions, Budget{limits: b.limits, used: b.remembered(now)}
	next.used[disruptions] = bucket(now.Add(time.Duration(limit.Burst) * limit.Every))
	return next
}

// disruptions is the key of what was taken from that limit.
const disruptions = "disruptions"

// bucket is the time at which the bucket is full again. The zero time is long past.
type bucket time.Time

// Take takes an action from the budget, at the time of the caller's clock. It takes it from each
// limit that applies, or from none: then the budget is returned unchanged, and [*LimitError] has
// the limit and how long to wait. ModeNothing and ModeReport are free.
//
// A clock that goes back costs time, at most as long as the budget takes to be full: it never
// allows more.
func (b Budget) Take(a Action, now time.Time) (Budget, error) {
	shares := b.shares(a)
	if len(shares) == 0 {
		return b, nil
	}
	next := Budget{limits: b.limits, used: b.remembered(now)}
	var over *LimitError
	for _, s := range shares {
		full, err := s.limit.take(next.used[s.key], now)
		if err != nil && (over == nil || !over.Never && (err.Never || err.Wait > over.Wait)) {
			over = err
			over.Limit = s.name
		}
		next.used[s.key] = full
	}
	if over != nil {
		return b, over
	}
	return next, nil
}

// share is a limit that applies to an action, and the key of what was taken from it.
type share struct {
	name, key string
	limit     Limit
}

func (b Budget) shares(a Action) []share {
	if a.Do == ModeNothing || a.Do == ModeReport || a.Do == "" {
		return nil
	}
	pod := a.Target.String() + " " + a.Target.UID
	shares := []share{{LimitWrites, "", b.limits.Writes}, {LimitPerPod, "pod " + pod, b.limits.PerPod}}
	if a.Do.disrupts() {
		shares = append(shares, share{LimitDisruptions, disruptions, b.limits.Disruptions},
			share{LimitPerOwner, "owner " + cmp.Or(a.Owner, pod), b.limits.PerOwner})
	}
	return shares
}

// take takes one from a bucket. The error has the time until one is available.
func (l Limit) take(full bucket, now time.Time) (bucket, *LimitError) {
	if l.Burst == 0 || l.Validate() != nil {
		return full, &LimitError{Never: true}
	}
	at := l.settled(full, now)
	if wait := at.Sub(now) - time.Duration(l.Burst-1)*l.Every; wait > 0 {
		return full, &LimitError{Wait: wait}
	}
	return bucket(at.Add(l.Every)), nil
}

// settled returns when the bucket is full again, seen from now: not in the past, and not later than
// for an empty bucket, as it may be after a clock went back.
func (l Limit) settled(full bucket, now time.Time) time.Time {
	at, empty := time.Time(full), now.Add(time.Duration(l.Burst)*l.Every)
	switch {
	case at.Before(now):
		return now
	case at.After(empty):
		return empty
	default:
		return at
	}
}

// remembered copies what is not restored by now.
func (b Budget) remembered(now time.Time) map[string]bucket {
	used := maps.Clone(b.used)
	if used == nil {
		return map[string]bucket{}
	}
	maps.DeleteFunc(used, func(_ string, full bucket) bool { return !time.Time(full).After(now) })
	return used
}

// LimitError means that an action has to wait. It is an error.
type LimitError struct {
	// Limit is the limit with the longest wait, one of the names above, such as [LimitWrites].
	Limit string
	// Wait is how long to wait, unless something else is taken meanwhile.
	Wait time.Duration
	// Never reports that the limit allows nothing, however long the caller waits.
	Never bool
}

// Error returns the limit and the time.
func (e *LimitError) Error() string {
	if e.Never {
		return "over the limit \"" + e.Limit + "\", which allows nothing: raise it, or report only"
	}
	return fmt.Sprintf("over the limit %q: again in %s", e.Limit, e.Wait)
}
