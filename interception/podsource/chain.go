// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Chain asks sources in order, until one knows the pod. The zero Chain has no sources, and knows no
// pod.
type Chain struct {
	// Links are the sources.
	Links []Link
	// Timeout is how long they take at most, all together; 30 s when 0.
	Timeout time.Duration
}

// Link is a source in a chain.
type Link struct {
	// Name names the source in results and errors, such as "agent".
	Name string
	// Source is asked once; the source itself may try again within its time.
	Source Source
	// Timeout is how long it takes at most. When 0, it is an equal share of the time that the chain
	// has left, so that a source that hangs leaves time for those after it.
	Timeout time.Duration
}

// Answer is a pod, and where it comes from.
type Answer struct {
	// Pod is what the source knows of the pod.
	Pod interception.Pod
	// Source is the name of the link that answered.
	Source string
	// Failures are those of the links before it.
	Failures []LinkError
}

// Ask returns the pod that ref names, from the first source that knows it. The error is a
// [*ChainError]. A source must return when its context ends, which is when its time is over; Ask
// waits for it.
func (c Chain) Ask(ctx context.Context, ref Ref) (Answer, error) {
	ctx, cancel := withTimeout(ctx, cmp.Or(c.Timeout, defaultTimeout), "for all sources")
	defer cancel()
	var failures []LinkError
	for i, link := range c.Links {
		if ctx.Err() != nil {
			failures = append(failures, LinkError{link.Name, fmt.Errorf("not asked: %w", context.Cause(ctx))})
			continue
		}
		pod, err := link.ask(ctx, ref, len(c.Links)-i)
		if err == nil {
			return Answer{pod, link.Name, failures}, nil
		}
		failures = append(failures, LinkError{link.Name, err})
	}
	return Answer{}, &ChainError{ref, failures}
}

// Pod returns the pod that Ask returns. It makes a Chain a [Source], too.
func (c Chain) Pod(ctx context.Context, ref Ref) (interception.Pod, error) {
	answer, err := c.Ask(ctx, ref)
	return answer.Pod, err
}

// ask asks the source within its time. Without a Timeout, that is its share among the sources that
// are left.
func (l Link) ask(ctx context.Context, ref Ref, left int) (interception.Pod, error) {
	timeout := l.Timeout
	if deadline, found := ctx.Deadline(); found && timeout == 0 && left > 1 {
		timeout = time.Until(deadline) / time.Duration(left)
	}
	if timeout > 0 { // else all that is left
		var cancel context.CancelFunc
		ctx, cancel = withTimeout(ctx, timeout, "for this source")
		defer cancel()
	}
	if l.Source == nil {
		return interception.Pod{}, errors.New("no source is given")
	}
	return l.Source.Pod(ctx, ref)
}

// LinkError is why a link of a chain returned no pod.
type LinkError struct {
	// Name is the link's.
	Name string
	// Err is what its source said.
	Err error
}

// Error returns the source's error, after the link's name unless it is an [*Error], which names its
// source.
func (e LinkError) Error() string {
	if failure, is := errors.AsType[*Error](e.Err); is {
		return failure.problem()
	}
	return e.Name + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e LinkError) Unwrap() error { return e.Err }

// ChainError says why no source of a chain returned a pod.
type ChainError struct {
	// Pod is the pod that was asked for.
	Pod Ref
	// Failures are those of all links, in order.
	Failures []LinkError
}

// Error returns the problem and the remedy.
func (e *ChainError) Error() string { return e.Problem() + "; " + e.Remedy() }

// Unwrap returns the failures.
func (e *ChainError) Unwrap() []error {
	errs := make([]error, len(e.Failures))
	for i, failure := range e.Failures {
		errs[i] = failure
	}
	return errs
}

// Problem says of each source, in order, how it failed, in one line.
func (e *ChainError) Problem() string {
	if len(e.Failures) == 0 {
		return fmt.Sprintf("pod %s: there is no source to ask", e.Pod)
	}
	texts := make([]string, len(e.Failures))
	for i, failure := range e.Failures {
		texts[i] = failure.Error()
	}
	return fmt.Sprintf("pod %s: no source knows it: %s", e.Pod, strings.Join(texts, "; "))
}

// Remedy says what the operator can do. If that is several things, one of them is enough.
func (e *ChainError) Remedy() string {
	var remedies []string
	for _, link := range e.Failures {
		if failure, is := errors.AsType[*Error](link.Err); is {
			remedies = append(remedies, failure.Remedy())
		}
	}
	if len(remedies) == 0 {
		return "give the plugin a source that knows the pod: the node agent, or the API server"
	}
	if len(remedies) == 1 {
		return remedies[0]
	}
	return "one of these is enough: " + strings.Join(remedies, "; ")
}
