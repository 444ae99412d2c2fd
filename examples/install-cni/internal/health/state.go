// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// State is what the parts of the daemon report. It is safe for concurrent use; create it with
// [NewState].
type State struct {
	// LookWithin bounds how long all checks of a [State.Look] together take; 0 stands for half a
	// second. It must be set before the first Look.
	LookWithin time.Duration

	mu    sync.Mutex
	parts []*part       // in the order in which they were first named
	look  chan struct{} // of the Look in progress; closed at its end

	// notifying is separate from mu: a log may hang, and must not block readers.
	notifying sync.Mutex
	log       *slog.Logger
	said      *string       // the reasons that were last logged
	turned    chan struct{} // closed when the node becomes ready or unready
}

// Condition is the state of one part.
type Condition struct {
	// Part is its name.
	Part string `json:"part"`
	// Ready reports that the part does its work; Reason is why it does not.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	// Since is when Ready last changed.
	Since time.Time `json:"since"`
	// Auxiliary reports that the node is ready without it, too.
	Auxiliary bool `json:"auxiliary,omitempty"`
	// Contested describes another program that keeps undoing what the part does; may be empty. The
	// part may be ready all the same.
	Contested string `json:"contested,omitempty"`
	// Restarts counts how often the part failed as a whole and was restarted.
	Restarts int `json:"restarts,omitempty"`
	// Unhealthy is why only a restart of the process would help; empty if other things would.
	Unhealthy string `json:"unhealthy,omitempty"`
}

type part struct {
	Condition
	said  string                                    // why it isn't ready, as the part reported
	check func(ctx context.Context) (reason string) // may be nil
	found string                                    // result of check since the last report
}

// judge derives the condition from what is known.
func (p *part) judge() {
	reason := cmp.Or(p.said, p.found)
	if ready := reason == ""; ready != p.Ready {
		p.Ready, p.Since = ready, time.Now()
	}
	p.Reason = reason
}

func (p *part) say(reason string) {
	p.said, p.found = reason, ""
	p.judge()
}

// starting is the reason of a part that has not reported yet.
const starting = "starting"

// NewState returns a state in which no part is ready, because it is starting.
func NewState(parts ...string) *State {
	s := &State{log: slog.New(slog.DiscardHandler), turned: make(chan struct{})}
	for _, part := range parts {
		s.condition(part)
	}
	return s
}

// LogTo makes the state log, from now on, when the node becomes ready or unready, and in detail the
// reasons.
func (s *State) LogTo(log *slog.Logger) {
	s.notifying.Lock()
	defer s.notifying.Unlock()
	s.log = log
}

// Set records why a part is not ready, or with an empty reason that it is. It reports whether that
// is new.
func (s *State) Set(part, reason string) (news bool) {
	defer s.notify()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.parts)
	c := s.condition(part)
	news = len(s.parts) > before || c.said != reason
	c.say(reason)
	if reason == "" {
		c.Unhealthy = ""
	}
	return news
}

// Failed records that a part failed as a whole and will be restarted; unhealthy, unless empty, is
// why that will not help.
func (s *State) Failed(part, reason, unhealthy string) {
	defer s.notify()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.condition(part)
	c.say(reason)
	c.Restarts++
	c.Unhealthy = unhealthy
}

// Contest records that another program keeps undoing what a part does, or with an empty reason that
// this has ended. It does not change readiness.
func (s *State) Contest(part, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition(part).Contested = reason
}

// Auxiliary records that the node is ready whether the part is or not.
func (s *State) Auxiliary(part string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition(part).Auxiliary = true
}

// Reasons returns "part: reason" for the parts that keep the node from being ready, in their order.
func (s *State) Reasons() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reasons()
}

// AwaitReady waits until the node is ready, or returns the error of ctx when it ends.
func (s *State) AwaitReady(ctx context.Context) error {
	for {
		s.notifying.Lock()
		turned := s.turned
		s.notifying.Unlock()
		if len(s.Reasons()) == 0 {
			return nil
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Conditions returns those of all parts, in their order.
func (s *State) Conditions() []Condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	conditions := make([]Condition, len(s.parts))
	for i, c := range s.parts {
		conditions[i] = c.Condition
	}
	return conditions
}

func (s *State) reasons() []string {
	var reasons []string
	for _, c := range s.parts {
		if !c.Ready && !c.Auxiliary {
			reasons = append(reasons, c.Part+": "+c.Reason)
		}
	}
	return reasons
}

// condition returns the part of that name; a new part is starting.
func (s *State) condition(name string) *part {
	for _, c := range s.parts {
		if c.Part == name {
			return c
		}
	}
	c := &part{Condition: Condition{Part: name, Reason: starting, Since: time.Now()}, said: starting}
	s.parts = append(s.parts, c)
	return c
}

func (s *State) notify() {
	s.notifying.Lock()
	defer s.notifying.Unlock()
	reasons := strings.Join(s.Reasons(), "; ")
	if s.said != nil && *s.said == reasons {
		return
	}
	level := slog.LevelDebug
	if s.said == nil || (*s.said == "") != (reasons == "") {
		level = slog.LevelInfo
		close(s.turned)
		s.turned = make(chan struct{})
	}
	s.said = &reasons
	if reasons == "" {
		s.log.Log(context.Background(), level, "ready")
		return
	}
	s.log.Log(context.Background(), level, "not ready", "reasons", reasons)
}

// defaultLookWithin leaves half of the second that a probe of the kubelet waits.
const defaultLookWithin = 500 * time.Millisecond

// Check sets the check of a part. Look runs it to learn why a part is not ready although it has
// reported that it is; an empty reason means that it is. The check must return when its context
// ends; only Look waits for it.
func (s *State) Check(part string, check func(ctx context.Context) (reason string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition(part).check = check
}

// Look runs the checks of all parts that have reported that they are ready, all at once, and
// returns when they have ended or ctx has. Only one Look is in progress at a time: a concurrent
// call waits for its end.
func (s *State) Look(ctx context.Context) {
	s.mu.Lock()
	end := s.look
	if end == nil {
		end = make(chan struct{})
		s.look = end
		go s.lookAround(context.WithoutCancel(ctx), end)
	}
	s.mu.Unlock()
	select {
	case <-end:
	case <-ctx.Done():
	}
}

// lookAround runs the checks, even if no caller waits for them any more.
func (s *State) lookAround(ctx context.Context, end chan<- struct{}) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.LookWithin, defaultLookWithin))
	defer cancel()
	var group sync.WaitGroup
	for part, check := range s.checks() {
		group.Go(func() { s.find(part, check(ctx)) })
	}
	group.Wait()
	s.mu.Lock()
	s.look = nil
	s.mu.Unlock()
	s.notify()
	close(end)
}

// checks returns those of the parts that have reported that they are ready.
func (s *State) checks() map[string]func(context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	checks := map[string]func(context.Context) string{}
	for _, p := range s.parts {
		if p.check != nil && p.said == "" {
			checks[p.Part] = p.check
		}
	}
	return checks
}

func (s *State) find(part, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.condition(part)
	p.found = reason
	p.judge()
}
