// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The conditions of an [AwaitError].
var (
	// ErrNeverConnected: no proxy has ever connected to this server.
	ErrNeverConnected = errors.New("no proxy has connected since this agent began: see that the proxy runs on this node")
	// ErrDisconnected: a proxy was connected, and none is now.
	ErrDisconnected = errors.New("the proxy is gone: see whether it restarts")
	// ErrRefused: the proxy has refused the pod.
	ErrRefused = errors.New("the proxy refuses the pod: see its log")
	// ErrUnanswered: the proxy has not acknowledged the pod yet.
	ErrUnanswered = errors.New("the proxy has not acknowledged the pod yet: it may be busy")
)

// AwaitError is the error of [Server.Await].
type AwaitError struct {
	// UID is that of the pod.
	UID string
	// Condition is one of the four errors above.
	Condition error
	// Since is when the last connection ended, with ErrDisconnected.
	Since time.Time
	// Text is the proxy's, with ErrRefused.
	Text string
	// Cause is why the wait ended: that of the context.
	Cause error
}

// Error says what holds, and for how long the caller has waited in vain.
func (e *AwaitError) Error() string {
	text := fmt.Sprintf("pod %s: %v", e.UID, e.Condition)
	switch {
	case !e.Since.IsZero():
		text += fmt.Sprintf(" (since %s)", e.Since.UTC().Format(time.RFC3339))
	case e.Text != "":
		text += fmt.Sprintf(" (it says %q)", e.Text)
	}
	return fmt.Sprintf("%s; %v", text, e.Cause)
}

// Unwrap returns the condition and the cause.
func (e *AwaitError) Unwrap() []error { return []error{e.Condition, e.Cause} }

// Await waits until the proxies are where the caller wants a pod to be: until the newest one has
// acknowledged a pod that is set, or until all have acknowledged that a pod is deleted. If the
// context ends before, the error is an [*AwaitError].
func (s *Server) Await(ctx context.Context, uid string) error {
	for {
		s.mu.Lock()
		wrong, changed := s.wrong(uid), s.changed
		s.mu.Unlock()
		if wrong == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			wrong.Cause = context.Cause(ctx)
			return wrong
		}
	}
}

// wrong returns the condition in which a pod is not where it should be, or nil.
func (s *Server) wrong(uid string) *AwaitError {
	wrong := &AwaitError{UID: uid, Condition: ErrUnanswered}
	wanted, set := s.pods[uid]
	if !set {
		for _, c := range s.live {
			if _, knows := c.told[uid]; knows {
				return wrong
			}
		}
		return nil
	}
	newest := s.newest()
	switch {
	case newest == nil && s.hellos == 0:
		wrong.Condition = ErrNeverConnected
	case newest == nil:
		wrong.Condition, wrong.Since = ErrDisconnected, s.lost
	case newest.told[uid].number != wanted.number, !newest.told[uid].answered:
	case newest.told[uid].refused != "":
		wrong.Condition, wrong.Text = ErrRefused, newest.told[uid].refused
	default:
		return nil
	}
	return wrong
}
