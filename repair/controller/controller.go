// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
)

// Controller keeps the pods of one node captured. Create it with [New].
type Controller struct {
	options Options
	queue   workqueue.TypedRateLimitingInterface[string] // of namespace/name

	// The queue gives a pod to one worker at a time, so two looks at a pod never run at once. mu
	// guards what all pods share, and what is remembered of a pod, which [Controller.Status] and
	// pods that wait for the same limit read. No goroutine waits while it holds mu: budgets are
	// taken from before a write, and what a write costs is not given back.
	mu           sync.Mutex
	patients     map[string]*patient // by namespace/name; as long as the pod exists
	initial      map[string]bool     // the pods of the start that were not looked at yet
	synced       bool                // all pods of the start are in the queue
	round        int                 // of looking at all pods; the first is 1
	budget       repair.Budget
	reports      repair.Budget
	done         map[ModeResult]int
	eventsFailed int
}

// patient is what is remembered of a pod.
type patient struct {
	uid        types.UID
	initial    bool    // the pod existed at the start
	round      int     // of the last look at its namespace
	finding    summary // the last one
	reported   summary // last reported on the pod, at reportedAt
	reportedAt time.Time
	waiting    string // the limit that it waits for, or empty
	unseen     bool
	failed     bool      // all of its containers have ended, and its network with them
	known      bool      // a record of it was read
	missing    time.Time // since when a pod that may be ending has no record
	// unrepaired is how often repairs in place have failed since one succeeded or none was needed, and
	// unrepairedBy is the last such error.
	unrepaired   int
	unrepairedBy error
}

// summary is what distinguishes findings.
type summary struct {
	verdict repair.Verdict
	reason  repair.Reason
}

func summaryOf(f repair.Finding) summary { return summary{f.Verdict, f.Reason} }

const (
	// workers is how many pods are handled at a time.
	workers = 4
	// attempts is how often something is tried, until the pod changes or its turn comes again.
	attempts   = 5
	firstPause = time.Second
	mostPause  = 5 * time.Minute
	// settling is how long the API server may show a pod as running after the node has removed its
	// network, and with it the plugin's record.
	settling = 30 * time.Second
)

// New returns a controller, and sends no request yet. errors.Is(err, ErrOptions) holds for the
// error.
func New(o Options) (*Controller, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	return &Controller{
		options: o,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPause, mostPause),
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: calmClock{}}),
		patients: map[string]*patient{}, initial: map[string]bool{}, round: 1,
		// A process that fails again and again must not evict anew at each start.
		budget: repair.NewBudget(o.Limits).WithoutDisruptions(o.Now()),
		// A report counts as a write here, and only this limit applies to it.
		reports: repair.NewBudget(repair.Limits{Writes: o.Reports, PerPod: repair.Limit{Burst: 1}}),
		done:    map[ModeResult]int{},
	}, nil
}

// Run keeps the pods captured until ctx ends. It is called once, and waits for everything that it
// began. The error is about an informer that was stopped before.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	handler, err := c.options.Informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: c.added,
		UpdateFunc: func(old, now any) {
			if versionOf(old) != versionOf(now) { // otherwise the API server only repeats it
				c.added(now, false)
			}
		},
		DeleteFunc: c.deleted,
	})
	if err != nil {
		return fmt.Errorf("look after the pods of node %s: %w", c.options.Criteria.Node, err)
	}
	defer c.options.Informer.RemoveEventHandler(handler) //nolint:errcheck // the handler was added, so there is no error
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil // the caller has stopped it
	}
	c.mu.Lock()
	c.synced = true
	c.mu.Unlock()
	c.options.OnStatus()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	c.rounds(ctx)
	c.queue.ShutDown()
	group.Wait()
	return nil
}

func (c *Controller) rounds(ctx context.Context) {
	ticker := time.NewTicker(c.options.Resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.Scan()
		}
	}
}

// Scan looks at every pod again, its namespace included, as each resync does. It also retries what
// was given up.
func (c *Controller) Scan() {
	c.mu.Lock()
	c.round++
	c.mu.Unlock()
	for _, key := range c.options.Informer.GetStore().ListKeys() {
		c.queue.Forget(key)
		c.queue.Add(key)
	}
}

func (c *Controller) added(object any, initial bool) {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return // not an object: an informer sends none
	}
	c.mu.Lock()
	if initial {
		c.initial[key] = true
	}
	c.mu.Unlock()
	c.queue.Forget(key) // it has changed, and gets all its attempts again
	c.queue.Add(key)
}

func (c *Controller) deleted(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Forget(key)
		c.queue.Add(key) // the worker forgets it when done
	}
}

func versionOf(object any) string {
	if o, isPod := object.(*nodepods.Object); isPod {
		return string(o.UID) + " " + o.ResourceVersion
	}
	return ""
}

// next handles one pod. It returns false at the end.
func (c *Controller) next(ctx context.Context) bool {
	key, ended := c.queue.Get()
	if ended {
		return false
	}
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	last := c.queue.NumRequeues(key) >= attempts-1
	pause, failed := c.look(ctx, key, last)
	switch {
	case failed && !last:
		c.queue.AddRateLimited(key)
	case failed: // given up, until the pod changes or its turn comes again
		c.queue.Forget(key)
	case pause > 0:
		c.queue.AddAfter(key, pause)
	default:
		c.queue.Forget(key)
	}
	return true
}

// calmClock is the system's clock without tickers. The queue's ticker wakes it up every ten
// seconds, for timers that do not fire; the system's timers do.
type calmClock struct{ clock.RealClock }

// NewTicker returns a ticker that never ticks.
func (calmClock) NewTicker(time.Duration) clock.Ticker { return silence{} }

type silence struct{}

// C is never ready.
func (silence) C() <-chan time.Time { return nil }

// Stop does nothing.
func (silence) Stop() {}
