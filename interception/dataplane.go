// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"context"
	"fmt"
)

// Dataplane puts plans into the kernel, and reads back what is there. Package nftables has one, package iptables another, package choice one
// that is the first of several which can; package dataplanetest/fake has one in memory, and dataplanetest holds any to these laws.
//
// Apply, Remove and Observe refuse what they cannot work with, and change nothing then. The error wraps [ErrNotNetns] for a nil
// namespace and for one that was not opened, [os.ErrClosed] for one that was closed, [ErrHostNetns] for the host's unless it was
// opened by [HostNetns], [ErrName] for an owner's name that [Owner.Validate] refuses, and the context's error once that has ended.
type Dataplane interface {
	// Apply makes ns hold exactly what p says for p's owner: it is idempotent, replaces what the owner had there before, and
	// touches nobody else's rules. After an error the namespace holds the old plan or the new one. The error is an [*ApplyError]
	// when the kernel refuses a part of the plan; it wraps [ErrPlan] for a plan that [Plan.Validate] refuses, and [ErrUnsupported]
	// for one with a part that the dataplane or this kernel cannot apply. A nil plan is an error.
	Apply(ctx context.Context, ns *Netns, p *Plan) error
	// Supports is nil when the dataplane can apply every part of p; otherwise it names each part that it cannot, and wraps
	// [ErrUnsupported]. It asks no kernel: one that is too old says so in Apply.
	Supports(p *Plan) error
	// Remove takes everything of owner out of ns. It is nil when nothing was there.
	Remove(ctx context.Context, ns *Netns, owner Owner) error
	// Observe reads what ns really holds for owner, in the model of plans and in the order in which the kernel asks it, for [Diff] to
	// compare with a plan: right behind an Apply of p, Diff(p, state) is nil. It changes nothing. It decodes what the kernel does, and
	// trusts no comment: ids and reasons are taken from comments as hints, and never decide what a rule is. What it cannot decode is
	// there as [Opaque] or as a [Deviation], never left out. An owner of whom there is nothing has a State without objects. The errors
	// wrap [ErrHostNetns], [ErrName] or [ErrUnsupported], or say what could not be read.
	Observe(ctx context.Context, ns *Netns, owner Owner) (State, error)
}

// ApplyError says which part of a plan the kernel refused, why that part is there, and what the kernel said.
type ApplyError struct {
	// At is the part: a rule's id, an entry's id, a set's name, or a table's kind.
	At string
	// Why is the reason for that part, from the plan; it may be empty.
	Why string
	// Err is what the kernel answered.
	Err error
}

// Error names the part, its reason and the kernel's answer.
func (e *ApplyError) Error() string {
	if e.Why == "" {
		return fmt.Sprintf("kernel refused %s: %v", e.At, e.Err)
	}
	return fmt.Sprintf("kernel refused %s (%s): %v", e.At, e.Why, e.Err)
}

// Unwrap gives the kernel's answer.
func (e *ApplyError) Unwrap() error { return e.Err }
