// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// mostAttempts is how often a server is asked at most, however its answers change.
const mostAttempts = 10

// Pauses between attempts.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 3 * time.Second
)

// retry is how a request is repeated.
type retry struct {
	patience func(*Error) int                 // how often in a row a request may fail that way
	backoff  func(failures int) time.Duration // nil: the usual pauses
}

// run tries until there is an answer, until a failure has come too often, or until the time is
// over.
func (r retry) run(ctx context.Context, try func(context.Context) *Error) *Error {
	var last error
	for attempts, alike := 1, 1; ; attempts, alike = attempts+1, alike+1 {
		failure := try(ctx)
		if failure == nil {
			return nil
		}
		if !errors.Is(failure.Kind, last) {
			last, alike = failure.Kind, 1
		}
		if alike >= r.patience(failure) || attempts >= mostAttempts || !pause(ctx, r.pauseAfter(attempts)) {
			return failure
		}
	}
}

func (r retry) pauseAfter(failures int) time.Duration {
	if r.backoff != nil {
		return r.backoff(failures)
	}
	d := min(firstPause<<min(failures-1, 10), longestPause)
	return d*4/5 + rand.N(d*2/5)
}

// pause waits, and reports whether the context allowed it to wait to the end.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// withTimeout returns a context whose cause says which time limit was exceeded.
func withTimeout(ctx context.Context, d time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %v %s: %w", d, what, context.DeadlineExceeded))
}
