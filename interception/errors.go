// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
)

// The errors that callers may want to distinguish with errors.Is.
var (
	// ErrUnsupported means that this version, operating system or kernel cannot do what the caller
	// asked for. It also matches [errors.ErrUnsupported].
	ErrUnsupported error = unsupportedError{}
	// ErrName means that the kernel's tools would not accept a name or a reason.
	ErrName = errors.New("invalid name")
	// ErrPlan means that a plan is refused. A [PlanError] says where and why.
	ErrPlan = errors.New("invalid plan")
	// ErrHostNetns means that the network namespace is the host's, or the one this process started
	// in, and that the caller did not ask for it with [HostNetns].
	ErrHostNetns = errors.New("network namespace is the host's")
	// ErrNotNetns means that a path or descriptor is not a network namespace.
	ErrNotNetns = errors.New("not a network namespace")
)

type unsupportedError struct{}

func (unsupportedError) Error() string { return "not supported" }

func (unsupportedError) Unwrap() error { return errors.ErrUnsupported }

// PlanError is a reason why [Build] or [Plan.Validate] refuses a plan. It wraps [ErrPlan].
type PlanError struct {
	// At is the place in the plan: a rule's position and id, an entry's id, or a set's name.
	At string
	// Err says what is wrong and what would be right.
	Err error
}

// Error returns the place and the reason.
func (e *PlanError) Error() string { return fmt.Sprintf("%v: %s: %v", ErrPlan, e.At, e.Err) }

// Unwrap returns [ErrPlan] and the reason.
func (e *PlanError) Unwrap() []error { return []error{ErrPlan, e.Err} }

// ParseError means that a value of the pod is invalid. A parser joins one for each such value.
type ParseError struct {
	// Source is the key with the value as written in the pod.
	Source Source
	// Err says what is wrong with the value.
	Err error
}

// Error returns key, value and reason. Of a long value it shows the first 256 bytes.
func (e *ParseError) Error() string { return fmt.Sprintf("invalid %s: %v", e.Source.brief(), e.Err) }

// Unwrap returns the reason.
func (e *ParseError) Unwrap() error { return e.Err }
