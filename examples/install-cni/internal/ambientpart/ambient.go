// SPDX-License-Identifier: Apache-2.0

package ambientpart

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/child"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/internal/ambientnews"
)

// The names of the parts.
const (
	PartName      = "ambient"
	ProxyPartName = "ambient-proxy"
)

// Ambient is safe for concurrent use. Create it with [New].
type Ambient struct {
	options Options
	news    chan struct{} // signals that the state of the proxy has changed

	mu      sync.Mutex
	running *state                  // of the process; nil unless it has reported
	end     context.CancelCauseFunc // of the process that runs
}

// Options configure the process to start. All fields but AskEvery and Silence must be set.
type Options struct {
	// Command returns the program and its arguments; it is called at each start.
	Command func() ([]string, error)
	// Events and Proxy are the paths of its sockets for the plugin and for the node's proxy. Their
	// directories are created. Where the node's namespace captures the pods, the process listens at
	// Proxy only while pods move from one form of capture to the other.
	Events, Proxy string
	// Log receives the process's log.
	Log *slog.Logger
	// OnRequest is called for each request of a plugin. It must not block.
	OnRequest func(ambientnews.Request)
	// OnFailure is called when a step fails for a pod, once until the pod's state has changed again.
	// It must not block.
	OnFailure func(step string)
	// OnCount is called for everything else that the process has counted. It must not block.
	OnCount func(ambientnews.Count)
	// AskEvery is how often the process is asked at Events whether it still answers; 5 s if zero.
	AskEvery time.Duration
	// Silence is how long it may leave that unanswered before it is ended and started again; 10 s
	// if zero.
	Silence time.Duration
}

// New returns the parts of ambient mode, and starts nothing yet.
func New(o Options) *Ambient {
	o.AskEvery, o.Silence = cmp.Or(o.AskEvery, defaultAskEvery), cmp.Or(o.Silence, defaultSilence)
	return &Ambient{options: o, news: make(chan struct{}, 1)}
}

// Part returns the part that runs the process. It is ready once the agent knows the node's pods. A
// process that does not answer any more is ended, and so started again.
func (a *Ambient) Part() parts.Part { return parts.Part{Name: PartName, Check: a.check, Run: a.run} }

// ProxyPart returns the part that is ready while a proxy is connected or, where the node's
// namespace captures the pods, has its listeners and can be used. The node is ready without it.
func (a *Ambient) ProxyPart() parts.Part {
	return parts.Part{Name: ProxyPartName, Auxiliary: true, Run: func(ctx context.Context, say func(string)) error {
		for {
			say(a.proxyReason())
			select {
			case <-ctx.Done():
				return nil
			case <-a.news:
			}
		}
	}}
}

// State returns what the running process has reported; nil if no process has.
func (a *Ambient) State() *State {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		return nil
	}
	return a.running.summary()
}

// check has the process started again if its socket was taken away.
func (a *Ambient) check(context.Context) (reason string) {
	if _, err := os.Lstat(a.options.Events); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	a.mu.Lock()
	end := a.end
	a.mu.Unlock()
	if end != nil {
		end(fmt.Errorf("its socket was taken away: %s", a.options.Events))
	}
	return "the socket for the plugin is missing: " + a.options.Events
}

func (a *Ambient) run(ctx context.Context, say func(string)) error {
	defer a.forget()
	command, err := a.options.Command()
	if err != nil {
		return ended(err)
	}
	for _, socket := range []string{a.options.Events, a.options.Proxy} {
		if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
			return ended(fmt.Errorf("make a directory for its socket: %w", err))
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	a.mu.Lock()
	a.end = end
	a.mu.Unlock()
	var group sync.WaitGroup
	defer group.Wait()
	defer end(nil) // first: it ends what is waited for
	group.Go(func() { a.listen(ctx, say, end) })
	return ended(child.Process{
		Name: "node-ambient", Command: command, Log: a.options.Log, OnLine: func(line []byte) { a.takeLine(line, say) },
	}.Run(ctx))
}

func ended(err error) error { return fmt.Errorf("keep the node's pods in ambient mode: %w", err) }

// forget forgets what the process has reported.
func (a *Ambient) forget() {
	a.mu.Lock()
	a.running, a.end = nil, nil
	a.mu.Unlock()
	a.nudge()
}

func (a *Ambient) nudge() {
	select {
	case a.news <- struct{}{}:
	default: // it will look again anyway
	}
}

// takeLine takes a line of the process.
func (a *Ambient) takeLine(text []byte, say func(string)) {
	var line ambientnews.Line
	if err := json.Unmarshal(text, &line); err != nil {
		a.options.Log.Warn("can't decode what node-ambient says", "error", err)
		return
	}
	switch {
	case line.Request != nil:
		a.options.OnRequest(*line.Request)
	case line.Count != nil:
		a.options.OnCount(*line.Count)
	case line.Pod != nil:
		if failed := a.state(func(s *state) bool { return s.takePod(*line.Pod) }); failed {
			a.options.OnFailure(line.Pod.Step)
		}
	case line.StandsBy:
		a.state(func(s *state) bool { *s = *newState(); s.standsBy = true; return true })
		say("") // the newer process serves the plugin, too
		a.nudge()
	case line.Node != nil:
		a.state(func(s *state) bool { s.node, s.began, s.standsBy = *line.Node, true, false; return true })
		say(notComplete(*line.Node))
		a.nudge()
	}
}

// state changes the state of the process.
func (a *Ambient) state(change func(*state) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		a.running = newState()
	}
	return change(a.running)
}

// notComplete returns why the agent cannot enrol all pods yet; empty if it can.
func notComplete(node ambientnews.Node) string {
	switch {
	case node.Complete:
		return ""
	case node.Feed != "":
		return "node-ambient has not been told of the node's pods: " + node.Feed
	}
	return "node-ambient is being told of the node's pods"
}

// proxyReason returns why no proxy is connected; empty if one is.
func (a *Ambient) proxyReason() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		return "node-ambient does not run, to which the proxy connects"
	}
	return a.running.proxyReason(a.options.Proxy)
}
