// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
)

// The errors that callers may want to tell apart, with errors.Is.
var (
	// ErrUnsupported means that this version, operating system or kernel cannot do what was asked. It is also an [errors.ErrUnsupported].
	ErrUnsupported error = unsupportedError{}
	// ErrName means that a name or a reason has a form that the kernel's tools would not take.
	ErrName = errors.New("invalid name")
	// ErrPlan means that a plan is refused; a [PlanError] says where and why.
	ErrPlan = errors.New("invalid plan")
	// ErrHostNetns means that the network namespace is the host's, or the one this process started in, and that this was not
	// asked for with [HostNetns].
	ErrHostNetns = errors.New("network namespace is the host's")
	// ErrNotNetns means that a path or descriptor is no network namespace.
	ErrNotNetns = errors.New("not a network namespace")
)

type unsupportedError struct{}

func (unsupportedError) Error() string { return "not supported" }

func (unsupportedError) Unwrap() error { return errors.ErrUnsupported }

// PlanError is one reason why [Build] or [Plan.Validate] refuses a plan. errors.Is(err, ErrPlan) holds for it.
type PlanError struct {
	// At is where in the plan: a rule's position and id, an entry's id, or a set's name.
	At string
	// Err says what is wrong and what would be right.
	Err error
}

// Error names the place and the reason.
func (e *PlanError) Error() string { return fmt.Sprintf("%v: %s: %v", ErrPlan, e.At, e.Err) }

// Unwrap gives [ErrPlan] and the reason.
func (e *PlanError) Unwrap() []error { return []error{ErrPlan, e.Err} }

// ParseError means that a value of the pod cannot be understood: whoever parses a pod returns one for each such value, joined.
type ParseError struct {
	// Source is the key with the value as it was found.
	Source Source
	// Err says what is wrong with the value.
	Err error
}

// Error names key, value and reason.
func (e *ParseError) Error() string { return fmt.Sprintf("invalid %s: %v", e.Source, e.Err) }

// Unwrap gives the reason.
func (e *ParseError) Unwrap() error { return e.Err }
