// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/agent/internal/tally"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/notice"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Finder finds and verifies the network namespaces of pods. [podnetns.Finder] does.
type Finder interface {
	FindAll(ctx context.Context, pods []podnetns.Pod) []podnetns.Finding
	Verify(pod podnetns.Pod, file *os.File) (*interception.Netns, error)
}

// SetEditor edits the members of live sets, as [interception.SetEdit] describes it. Dataplanes that
// hold such sets do.
type SetEditor interface {
	UpdateSet(ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit) error
}

// Annotator writes the pods' status annotations.
type Annotator interface {
	// Annotate sees to it that the pod gets the status, or none with [ambient.NoStatus]. It does not
	// wait for the API server, tries again by itself, and forgets a pod that is gone. The agent
	// calls it only if the pod has another status as far as the feed has told, and with
	// [ambient.StatusPending] only once the pod has been pending for 3 s, and never if its status is
	// [ambient.StatusEnabled], which stays until the pod leaves the mesh. With
	// [ambient.StatusEnabled] for a pod that the plugin waits for, the agent waits 25 ms, so that the
	// plugin can end first.
	Annotate(pod interception.Pod, status ambient.Status)
}

// Options are what an [Agent] works with. Required are Socket, Dataplane, Finder, Feed, Annotator,
// Journal, Owner, Numbers and Vocabulary.
type Options struct {
	// Socket is the path of the proxy's socket ([zds.Listen]).
	Socket string
	// Proxy are the settings of the server for the proxy. Its Observe may be nil.
	Proxy zds.Options
	// Dataplane applies the plans. If the kernel sends no notice when its rules or sets change, it
	// should be a [Tallier]: the agent then counts those on the Host, up to three times a second, and
	// usually finds within a second what other programs have changed. Otherwise it finds that in the
	// next round.
	Dataplane interception.Dataplane
	// Finder finds the namespaces that no plugin has handed over.
	Finder Finder
	// Feed tells of pods and namespaces.
	Feed Feed
	// Annotator gets the status of each enrolled pod.
	Annotator Annotator
	// Journal is for this agent alone: it has one record for each pod that may have rules.
	Journal journal.Journal
	// Owner owns the rules, in the pods and on the host.
	Owner interception.Owner
	// Policy selects the pods.
	Policy ambient.Policy
	// Vocabulary reads the pods' annotations, beginning with Defaults.
	Vocabulary ambient.Vocabulary
	Defaults   ambient.Overrides
	// Numbers are those of the proxy.
	Numbers ambient.Numbers
	// Host is the node's own namespace, and Sets edits the sets of [ambient.HostPlan] there. Without
	// a Host (nil) nothing is done on the host: that is right where the datapath bypasses its rules.
	// The caller closes the namespace.
	Host *interception.Netns
	Sets SetEditor
	// Branches makes the agent look for pods that the network's plugin routes by tables of their own,
	// such as those of AWS that have security groups, and has the host reach these, too
	// ([ambient.Branch]). It does so only where net.ipv4.tcp_early_demux is 0 on the host, as that
	// plugin sets it: elsewhere the kernel would go past the tables.
	Branches bool
	// TakeOver are dataplanes by which the agent finds the rules of Istio's own agent in a pod, and
	// removes them once its own are in place ([upstream.Recognise]). Their routes and policy rules
	// become the agent's if Dataplane is a [Claimer]. Rules that some program has
	// changed stay, and the pod has an error that wraps [ErrUpstream]. Where such rules use TPROXY,
	// the proxy's listeners have to be transparent until they are gone. The rules of Istio's agent on
	// the Host go, too, once all pods of the mesh are in the agent's sets. The agent ignores a
	// dataplane whose programs are not installed ([interception.ErrUnsupported]). Without dataplanes
	// (nil) it looks for none.
	TakeOver []ForeignDataplane
	// Closed captures pods before the proxy serves them, as [ambient.Wanted] describes it.
	Closed bool
	// CaptureExisting captures also the connections that a running pod has when it is enrolled, which
	// resets them. Without it they live on uncaptured.
	CaptureExisting bool
	// DrainTimeout is how long a withdrawn pod may keep connections through the proxy; 30 s if zero.
	DrainTimeout time.Duration
	// TellTimeout is how long the agent waits for an acknowledgement before it reports that there is
	// none; 5 s if zero. It goes on waiting.
	TellTimeout time.Duration
	// Round is how often each pod is looked at although nothing has happened; a minute if zero.
	Round time.Duration
	// ListenerRound is how often the proxy's listeners are looked for in the pods that it serves; 2 s
	// if zero. Where they are missing a second later, the proxy is told of the pod anew.
	ListenerRound time.Duration
	// WithoutNotices makes New go on without CAP_NET_BROADCAST, and is called with the kernel's
	// refusal. What other programs change is then found in rounds of 5 s at most. Without it (nil)
	// New fails.
	WithoutNotices func(error)
	// Parallel is how many running pods are worked on at once, not counting those that wait; 8 if
	// zero. As many that the plugin waits for are worked on besides.
	Parallel int
	// Observe is called, from several goroutines, before each step, after each failure, when a pod is
	// as wanted, and at last when the agent does not deal with it any more. It may be nil.
	Observe func(Pod)
	// ObserveHost is called when the host's rules cannot be kept, or cannot be counted
	// ([ErrUncounted]), or those of Istio's agent cannot be removed ([ErrUpstream]), and with nil when
	// they can again. The agent goes on trying by itself. It may be nil.
	ObserveHost func(error)
	// Held returns the step beyond which a pod, by its UID, must not go yet, while its node changes
	// the form of capture ([ambient.Wanted].Held). A retiring agent asks it about pods that leave,
	// and another one about pods that are to be captured. It must not wait, and not call the agent.
	// [Agent.Look] tells of a change. If nil, no pod is held.
	Held func(uid string) ambient.Step
	// Retiring makes the agent keep the pods of its journal, as long as they are to be in the mesh,
	// and enrol no other. Another form of capture takes the pods over, and the caller withdraws each
	// pod that has moved.
	Retiring bool
	// Count is called for what metrics count, from several goroutines. It must not wait, and not call
	// the agent. It may be nil.
	Count func(Count)
}

// Agent enrols and withdraws the pods of a node. Its methods may be called concurrently. Create it
// with [New].
type Agent struct {
	options Options
	server  *zds.Server
	watch   *notice.Watch
	sets    sets
	search  searches
	plans   plans
	slots   chan struct{} // has a value for each pod that is worked on, unless the plugin waits for it
	urgent  chan struct{} // has a value for each other pod that is worked on
	rush    rush
	stopped chan struct{} // closed when Run ends

	mu       sync.Mutex
	roster   roster.Roster
	fresh    bool               // the journal was empty, and the proxy is not served yet
	told     chan struct{}      // closed when the feed has told of all
	machines map[string]bool    // the pods that are virtual machines, by UID
	workers  map[string]*worker // by UID
	start    func(*worker)      // nil unless Run runs
	retired  chan struct{}      // closed when a worker has retired
}

// New listens on the proxy's socket, and reads the journal. The caller then calls [Agent.Run]: a
// proxy that connects is served from there on. New needs CAP_NET_BROADCAST, to learn of changes in
// the pods' namespaces, unless Options.WithoutNotices is set. The error names a missing option, or
// is that of [zds.Listen], [ambient.Numbers.Validate], [ambient.Policy.Validate] or the journal.
func New(ctx context.Context, o Options) (*Agent, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("ambient agent: %w", err)
	}
	o.DrainTimeout, o.TellTimeout = cmp.Or(o.DrainTimeout, 30*time.Second), cmp.Or(o.TellTimeout, 5*time.Second)
	o.Round, o.ListenerRound, o.Parallel = cmp.Or(o.Round, time.Minute), cmp.Or(o.ListenerRound, 2*time.Second), cmp.Or(o.Parallel, 8)
	if o.Observe == nil {
		o.Observe = func(Pod) {}
	}
	a := &Agent{
		options: o, slots: make(chan struct{}, o.Parallel), urgent: make(chan struct{}, o.Parallel), roster: roster.New(),
		workers: map[string]*worker{}, machines: map[string]bool{}, stopped: make(chan struct{}), told: make(chan struct{}),
		retired: make(chan struct{}),
	}
	a.search.finder = o.Finder
	a.sets = sets{
		options: &a.options, changed: make(chan struct{}, 1), entered: make(chan struct{}, 1), former: map[netip.Addr][]string{},
	}
	a.sets.upstream.failures, a.sets.tally = upkeep.Failures(), tally.New(a.sets.counter())
	records, err := a.records()
	if err != nil {
		return nil, fmt.Errorf("ambient agent: read its journal: %w", err)
	}
	proxy := o.Proxy
	proxy.Observe = a.hear
	if a.server, err = zds.Listen(ctx, o.Socket, proxy); err != nil {
		return nil, fmt.Errorf("ambient agent: %w", err)
	}
	for _, record := range records {
		err = errors.Join(err, a.remember(record))
	}
	a.fresh = len(records) == 0
	if err == nil {
		err = a.openWatch()
	}
	if err != nil {
		stopped, cancel := context.WithCancel(ctx)
		cancel()
		a.server.Serve(stopped) // it closes the socket
		return nil, fmt.Errorf("ambient agent: %w", err)
	}
	return a, nil
}

// blindRound is how often each pod is looked at where changes are not noticed.
const blindRound = 5 * time.Second

// openWatch begins to watch. Without the right to, the agent goes on in rounds if the caller allows
// that.
func (a *Agent) openWatch() (err error) {
	a.watch, err = watch(a.options.Host)
	if errors.Is(err, os.ErrPermission) && a.options.WithoutNotices != nil {
		a.options.WithoutNotices(err)
		a.watch, a.options.Round, err = notice.Blind(), min(a.options.Round, blindRound), nil
	}
	return err
}

// watch begins to watch the host, if the agent has rules there.
func watch(host *interception.Netns) (*notice.Watch, error) {
	w, err := notice.Open()
	if err != nil || host == nil {
		return w, err
	}
	if err := w.Add(hostKey, host); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (o Options) validate() error {
	for name, missing := range map[string]bool{
		"Socket": o.Socket == "", "Dataplane": o.Dataplane == nil, "Finder": o.Finder == nil, "Feed": o.Feed == nil,
		"Annotator": o.Annotator == nil, "Journal": o.Journal.Directory == "", "Owner": o.Owner == "",
		"Vocabulary": o.Vocabulary.Name == "", "Sets": o.Host != nil && o.Sets == nil,
	} {
		if missing {
			return fmt.Errorf("options without %s", name)
		}
	}
	return errors.Join(o.Numbers.Validate(), o.Policy.Validate())
}

// Run works until the context ends or the feed fails, and returns why. The rules stay as they are,
// and the proxy goes on serving. Run may be called once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var parts, working sync.WaitGroup
	fresh := a.fresh // nothing changes it before the feed is followed
	parts.Go(func() { a.serve(ctx, fresh) })
	parts.Go(func() { a.sets.keep(ctx, a.tidySets, a.takeOverHost) })
	watching, unwatched := context.WithCancelCause(ctx)
	defer unwatched(nil)
	parts.Go(func() { unwatched(a.notice(watching)) })
	parts.Go(func() { a.glance(ctx) })
	a.mu.Lock()
	a.start = func(w *worker) { working.Go(func() { w.run(ctx) }) }
	for _, w := range a.workers {
		a.start(w)
	}
	a.mu.Unlock()
	err := roster.Follow(watching, a.options.Feed, a.learn)
	a.mu.Lock()
	a.start = nil
	a.mu.Unlock()
	close(a.stopped)
	cancel()
	parts.Wait()
	working.Wait()
	for _, w := range a.workers {
		err = errors.Join(err, w.abandon())
	}
	return errors.Join(err, a.watch.Close())
}

// serve serves the proxy. One that connects forgets the pods that it is not told of, and it may
// have some from another agent: without a journal, which would name them, it waits for the feed.
func (a *Agent) serve(ctx context.Context, fresh bool) {
	if fresh {
		select {
		case <-a.told:
		case <-ctx.Done():
		}
	}
	a.server.Serve(ctx)
}

// notice has the workers look at the pods in whose namespaces a program has changed something.
// After a change on the host it has the host's rules looked at.
func (a *Agent) notice(ctx context.Context) error {
	for {
		changed, err := a.watch.Next(ctx)
		if err != nil {
			return fmt.Errorf("watch the pods' namespaces: %w", err)
		}
		if slices.Contains(changed.Keys, hostKey) || changed.Lost {
			a.sets.nudge()
		}
		a.mu.Lock()
		for uid, w := range a.workers {
			if _, is := slices.BinarySearch(changed.Keys, uid); is || changed.Lost {
				w.notice()
			}
		}
		a.mu.Unlock()
	}
}

// glance makes all workers look for the proxy's listeners from time to time.
func (a *Agent) glance(ctx context.Context) {
	ticker := time.NewTicker(a.options.ListenerRound)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		a.mu.Lock()
		for _, w := range a.workers {
			w.glance()
		}
		a.mu.Unlock()
	}
}

// Look has the agent look at a pod again.
func (a *Agent) Look(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wake(uid)
}

// hear is told what happens on the proxy's connections.
func (a *Agent) hear(event zds.Event) {
	if a.options.Proxy.Observe != nil {
		a.options.Proxy.Observe(event)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch uid := event.Request.Workload.UID; {
	case event.Connection == 0: // no proxy has said hello
	case event.Request.Kind == zds.KindSnapshotSent: // it is about no pod
	case uid == "": // a proxy has come or gone
		for _, w := range a.workers {
			w.nudge()
		}
	case a.workers[uid] != nil:
		a.workers[uid].nudgeResting()
	}
}

// Pods returns how far the agent is with each pod that it deals with, in no order.
func (a *Agent) Pods() []Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Pod
	for _, w := range a.workers {
		all = append(all, w.current())
	}
	return all
}
