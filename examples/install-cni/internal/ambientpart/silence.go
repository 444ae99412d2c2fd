// SPDX-License-Identifier: Apache-2.0

package ambientpart

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

// The defaults of [Options].
const (
	// defaultAskEvery is long enough for the process to have next to no work by it, and no longer
	// than the rounds in which it looks at its pods without a reason.
	defaultAskEvery = 5 * time.Second
	// defaultSilence is longer than an answer takes on a node that is overloaded, and shorter than
	// the plugin waits for a pod.
	defaultSilence = 10 * time.Second
)

var errNoAnswer = errors.New("the request has no answer")

// noPod is the UID of no pod: UIDs are hexadecimal.
const noPod = "none"

// silence is how long the process has not answered.
type silence struct {
	socket string
	within time.Duration
	since  time.Time // when the first request was sent that has no answer; zero: the last one has one
}

// listen asks the process again and again whether it still answers plugins. A process that serves,
// and gives no answer for as long as the options say, is not ready, and is ended to be started
// again: a process that was stopped or hangs does not end by itself.
func (a *Ambient) listen(ctx context.Context, say func(string), end context.CancelCauseFunc) {
	s := silence{socket: a.options.Events, within: a.options.Silence}
	ticker := time.NewTicker(a.options.AskEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.ask(ctx, a.serves); err != nil && ctx.Err() == nil {
			say("node-ambient hangs, and is started again: " + err.Error())
			end(err)
			return
		}
	}
}

// ask asks once. The error says that the silence is too long. Only a process that serves has to
// answer: one that starts or stands by has no socket.
func (s *silence) ask(ctx context.Context, serves func() bool) error {
	if !serves() {
		s.since = time.Time{}
		return nil
	}
	sent := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, s.within, errNoAnswer)
	defer cancel()
	// The answer takes the agent's own lock, so that it also shows that the agent goes on.
	_, err := event.Pods(limited, s.socket, event.Selection{UID: noPod})
	if err == nil || !serves() {
		s.since = time.Time{}
		return nil
	}
	if s.since.IsZero() {
		s.since = sent
	}
	if time.Since(s.since) < s.within {
		return nil
	}
	return fmt.Errorf("it has not answered for %v: %w", s.within, err)
}

// serves reports whether the process has told that it serves the plugin.
func (a *Ambient) serves() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running != nil && a.running.began && !a.running.standsBy
}
