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

// State is what the parts of the daemon say of themselves. It is safe for use by several goroutines; make it with [NewState].
type State struct {
	// LookWithin bounds how long all checks of a [State.Look] together take; half a second when 0. It is set before the first one.
	LookWithin time.Duration

	mu    sync.Mutex
	parts []*part       // in the order in which they were first named
	look  chan struct{} // of Look, while one is under way; closed with its end

	telling sync.Mutex // apart from the other, as a log may hang, and those who ask must not
	log     *slog.Logger
	said    *string       // the reasons that were last logged
	turned  chan struct{} // closed when the node gets ready or unready
}

// Condition is how one part is doing.
type Condition struct {
	// Part is its name.
	Part string `json:"part"`
	// Ready says that it does what it is there for; Reason why it doesn't.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	// Since is when Ready last changed.
	Since time.Time `json:"since"`
	// Auxiliary says that the node is ready without it, too.
	Auxiliary bool `json:"auxiliary,omitempty"`
	// Contested says that another program keeps undoing what the part does; empty when none does. The part may be ready all the same.
	Contested string `json:"contested,omitempty"`
	// Restarts counts how often it failed as a whole and was started again.
	Restarts int `json:"restarts,omitempty"`
	// Unhealthy says why only a restart of the process would help; empty when it wouldn't.
	Unhealthy string `json:"unhealthy,omitempty"`
}

// part is what is known of one.
type part struct {
	Condition
	said  string                                    // by itself: why it isn't ready
	check func(ctx context.Context) (reason string) // nil for none
	found string                                    // by check, since it last said something
}

// judge makes the condition from what is known. The change is over then.
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

// starting is the reason of a part that has not said anything yet.
const starting = "starting"

// NewState has every part not ready, because it is starting.
func NewState(parts ...string) *State {
	s := &State{log: slog.New(slog.DiscardHandler), turned: make(chan struct{})}
	for _, part := range parts {
		s.condition(part)
	}
	return s
}

// Tell logs from now on whether the node is ready, when that changes, and in detail which reasons there are.
func (s *State) Tell(log *slog.Logger) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.log = log
}

// Set records why a part isn't ready, or with an empty reason that it is. It reports whether that is news.
func (s *State) Set(part, reason string) (news bool) {
	defer s.tell()
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

// Failed records that a part failed as a whole and will be started again; unhealthy, if not empty, says why that won't help.
func (s *State) Failed(part, reason, unhealthy string) {
	defer s.tell()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.condition(part)
	c.say(reason)
	c.Restarts++
	c.Unhealthy = unhealthy
}

// Contest records that another program keeps undoing what a part does, or with an empty reason that none does. It changes no readiness.
func (s *State) Contest(part, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition(part).Contested = reason
}

// Auxiliary says that the node is ready whether the part is or not.
func (s *State) Auxiliary(part string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition(part).Auxiliary = true
}

// Reasons lists "part: reason" for the parts that keep the node from being ready, in their order. It is empty when none does.
func (s *State) Reasons() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reasons()
}

// AwaitReady waits until the node is ready, or ctx ends: then with its error.
func (s *State) AwaitReady(ctx context.Context) error {
	for {
		s.telling.Lock()
		turned := s.turned
		s.telling.Unlock()
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

// Conditions are those of all parts, in their order.
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

// condition is the part's; a part that is new is starting.
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

// tell logs what is new.
func (s *State) tell() {
	s.telling.Lock()
	defer s.telling.Unlock()
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

// defaultLookWithin leaves the rest of the second for which a probe of the kubelet waits.
const defaultLookWithin = 500 * time.Millisecond

// Check has Look ask for the reason why a part isn't ready although it says that it is; empty when there is none. The check must end with
// its context, and nobody else waits for it.
func (s *State) Check(part string, check func(ctx context.Context) (reason string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition(part).check = check
}

// Look asks the checks of all parts that say they are ready, all at once, and returns when that is known or ctx has ended. There is
// one look at a time: who asks meanwhile waits for the end of that one.
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

// lookAround asks, whether or not somebody still waits for the answer.
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
	s.tell()
	close(end)
}

// checks are those of the parts that say they are ready.
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

// find records what a check has found.
func (s *State) find(part, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.condition(part)
	p.found = reason
	p.judge()
}
