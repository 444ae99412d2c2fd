// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"context"
	"fmt"
)

// Dataplane applies plans to the kernel and reads back what the kernel holds. Packages nftables and
// iptables each have one; package choice has one that picks the first usable of several. Package
// dataplanetest/fake has one in memory; dataplanetest tests any implementation against this
// contract.
//
// Apply, Remove and Observe refuse arguments that they cannot work with, and then change nothing.
// The error wraps [ErrNotNetns] for a namespace that is nil or was not opened, [os.ErrClosed] for
// one that was closed, [ErrHostNetns] for the host's unless [HostNetns] opened it, [ErrName] for an
// owner's name that [Owner.Validate] refuses, and the context's error once the context has ended.
// Apply also refuses a plan that refers to a namespace which the handle has not ([Netns.With]).
type Dataplane interface {
	// Apply makes ns hold exactly p for p's owner. It is idempotent, replaces what the owner had
	// there before, and does not touch other programs' rules. Their addresses, routes and policy
	// rules serve the plan where they are the same as its own, and stay theirs. After an error the
	// namespace holds either the old plan or the new one. The error is an [*ApplyError] when the
	// kernel refuses a part of the plan, or another program's object is in the place of one. It
	// wraps [ErrPlan] for a plan that [Plan.Validate] refuses, and [ErrUnsupported] for a plan with
	// a part that the dataplane or this kernel cannot apply. A nil plan is an error.
	Apply(ctx context.Context, ns *Netns, p *Plan) error
	// Supports returns nil when the dataplane can apply every part of p. Otherwise the error names
	// each part that it cannot apply, and wraps [ErrUnsupported]. Supports does not ask the kernel:
	// with a kernel that is too old, Apply fails.
	Supports(p *Plan) error
	// Remove removes everything of owner from ns. It returns nil if there was nothing.
	Remove(ctx context.Context, ns *Netns, owner Owner) error
	// Observe reads what ns really holds for owner, in the model of plans and in the kernel's order
	// of evaluation, for [Diff] to compare with a plan: right after Apply of p, Diff(p, state) is
	// nil. It changes nothing. It decodes the kernel's rules and trusts no comment: ids and reasons
	// come from comments as hints and never decide what a rule is. What it cannot decode is in the
	// state as [Opaque] or as a [Deviation], never left out. When the namespace holds nothing of
	// the owner, the State has no objects. The error wraps [ErrHostNetns], [ErrName] or
	// [ErrUnsupported], or says what could not be read.
	Observe(ctx context.Context, ns *Netns, owner Owner) (State, error)
}

// ApplyError says which part of a plan the kernel refused, why the plan has that part, and what the
// kernel answered.
type ApplyError struct {
	// At is the part: a rule's id, an entry's id, a set's name, or a table's kind.
	At string
	// Why is the plan's reason for that part. It may be empty.
	Why string
	// Err is the kernel's answer.
	Err error
}

// Error returns the part, its reason and the kernel's answer.
func (e *ApplyError) Error() string {
	if e.Why == "" {
		return fmt.Sprintf("kernel refused %s: %v", e.At, e.Err)
	}
	return fmt.Sprintf("kernel refused %s (%s): %v", e.At, e.Why, e.Err)
}

// Unwrap returns the kernel's answer.
func (e *ApplyError) Unwrap() error { return e.Err }
