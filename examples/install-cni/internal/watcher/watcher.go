// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/child"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/internal/podnews"
	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// Watcher is safe for concurrent use. Create it with [New].
type Watcher struct {
	options Options
	client  podsource.Agent

	mu     sync.Mutex
	reason string // why no pod is known; empty if pods are
	repair *repairconf.Status
	server *podsource.ServerStatus            // the last result of check
	end    context.CancelCauseFunc            // of the process that runs
	pods   map[podsource.Ref]interception.Pod // as the process reported them, by namespace and name
}

// Options configure the process to start. All fields must be set.
type Options struct {
	// Command returns the program and its arguments; it is called at each start.
	Command func() ([]string, error)
	// Dir is the directory of its socket. It is created, for this user only.
	Dir string
	// Log receives the process's log.
	Log *slog.Logger
	// OnRepair is called when [Watcher.Repair] has changed. It must not block.
	OnRepair func()
	// OnInstalled receives whether the object exists that is removed only at the end of the
	// installation, whenever the process reports it. A restarted process reports it again.
	OnInstalled func(there bool)
}

const answerWithin = 2 * time.Second

// New returns a watcher, and starts nothing yet.
func New(o Options) *Watcher {
	return &Watcher{
		options: o, reason: "the process that watches the node's pods is starting",
		client: podsource.Agent{RunDir: o.Dir, Timeout: answerWithin, Once: true},
	}
}

// PartName is the part's name.
const PartName = "pods"

// Part returns the part that runs the process. It is ready once the process knows the node's pods.
func (w *Watcher) Part() parts.Part { return parts.Part{Name: PartName, Check: w.check, Run: w.run} }

// Unready returns why no pod is known now; empty if pods are known.
func (w *Watcher) Unready() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason
}

// Server returns how the API server answered the process at the part's last check, if the process
// answered; nil if that is not known.
func (w *Watcher) Server() *podsource.ServerStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.server
}

// check asks the process for its status. Known pods stay known: while the API server is silent,
// only the part is not ready.
func (w *Watcher) check(ctx context.Context) (reason string) {
	status, err := w.client.Status(ctx)
	// On an error, the last answer stays: otherwise an alert would start to wait again.
	if err == nil {
		w.mu.Lock()
		w.server = status.Server
		w.mu.Unlock()
	}
	w.endWithoutSocket(err)
	switch {
	case errors.Is(err, podsource.ErrProtocol): // a process that only knows pods
		return ""
	case err != nil:
		return "the process that watches the node's pods doesn't answer: " + err.Error()
	case status.Ready:
		return ""
	}
	return cmp.Or(status.Reason, "the process that watches the node's pods is not ready")
}

// endWithoutSocket ends the process if the error shows that it no longer listens at its socket. Run
// then starts another one.
func (w *Watcher) endWithoutSocket(err error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
		return
	}
	w.mu.Lock()
	end := w.end
	w.mu.Unlock()
	if end != nil {
		end(fmt.Errorf("its socket was taken away: %w", err))
	}
}

// Repair returns the state of repair as the running process last reported it; nil without a report.
func (w *Watcher) Repair() *repairconf.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.repair
}

// Pod answers from what the process has reported. It asks the process, once, about a pod that is
// missing from the reports, or has another UID there. All failures wrap podsource.ErrNotReady. If
// the process's socket was removed, the process is restarted. Callers must not change the pod's
// maps and lists.
func (w *Watcher) Pod(ctx context.Context, ref podsource.Ref) (interception.Pod, error) {
	w.mu.Lock()
	reason := w.reason
	known, found := w.pods[keyOf(ref.Namespace, ref.Name)]
	w.mu.Unlock()
	switch {
	case reason != "":
		return interception.Pod{}, fmt.Errorf("%w: %s", podsource.ErrNotReady, reason)
	case found && ref.Is(known.UID, known.Annotations):
		return known, nil
	}
	pod, err := w.client.Pod(ctx, ref)
	w.endWithoutSocket(err)
	for _, known := range []error{podsource.ErrNotFound, podsource.ErrStalePod, podsource.ErrNotReady} {
		if errors.Is(err, known) {
			return pod, err
		}
	}
	if err != nil {
		return pod, fmt.Errorf("%w: the process that watches the node's pods: %w", podsource.ErrNotReady, err)
	}
	return pod, nil
}

func (w *Watcher) run(ctx context.Context, say func(string)) error {
	command, err := w.options.Command()
	if err != nil {
		return w.ended(err)
	}
	if err := os.MkdirAll(w.options.Dir, 0o700); err != nil {
		return w.ended(fmt.Errorf("make a directory for its socket: %w", err))
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w.mu.Lock()
	w.end = end // set before the process can report that it is ready
	w.mu.Unlock()
	return w.ended(child.Process{
		Name: "node-watcher", Command: command, Log: w.options.Log, OnLine: func(line []byte) { w.takeLine(line, say) },
	}.Run(ctx))
}

// ended makes the part unready, and returns the reason.
func (w *Watcher) ended(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err = fmt.Errorf("watch the node's pods: %w", err)
	w.reason, w.repair, w.server, w.pods = err.Error(), nil, nil, nil
	return err
}

// takeLine takes a line of the process.
func (w *Watcher) takeLine(line []byte, say func(string)) {
	var said struct {
		podsource.AgentStatus
		repairconf.Line
		podnews.Presence
		podnews.News
	}
	err := json.Unmarshal(line, &said)
	switch {
	case err != nil:
		w.options.Log.Warn("can't decode what the process that watches pods says", "error", err)
	case said.Repair != nil:
		w.mu.Lock()
		w.repair = said.Repair
		w.mu.Unlock()
		w.options.Log.Debug("how repair is going", "status", string(line))
		w.options.OnRepair()
	case said.Pod != nil || said.Gone != nil:
		w.heard(said.News)
	case said.Installed != nil:
		w.options.OnInstalled(*said.Installed)
	default:
		w.is(said.AgentStatus, say)
	}
}

// is takes the status of the process.
func (w *Watcher) is(status podsource.AgentStatus, say func(string)) {
	reason := ""
	if !status.Ready {
		reason = cmp.Or(status.Reason, "the process that watches the node's pods is not ready")
	}
	w.mu.Lock()
	w.reason = reason
	w.mu.Unlock()
	say(reason)
}

// heard remembers what the process reports about a pod.
func (w *Watcher) heard(news podnews.News) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if news.Gone != nil {
		delete(w.pods, keyOf(news.Gone.Namespace, news.Gone.Name))
		return
	}
	if w.pods == nil {
		w.pods = map[podsource.Ref]interception.Pod{}
	}
	w.pods[keyOf(news.Pod.Namespace, news.Pod.Name)] = *news.Pod
}

// keyOf names a pod regardless of its UID.
func keyOf(namespace, name string) podsource.Ref {
	return podsource.Ref{Namespace: namespace, Name: name}
}
