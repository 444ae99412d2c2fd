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

	"github.com/meshcni/meshcni/repair"
)

// Controller keeps the pods of one node captured. Make it with [New].
type Controller struct {
	options Options
	queue   workqueue.TypedRateLimitingInterface[string] // of namespace/name

	// The queue gives a pod to one worker at a time, so a look at a pod meets no other look at it. What all pods share is below mu, and so is
	// what is remembered of a pod, which [Controller.Status] and pods that wait for the same limit read. Nobody waits for anything with mu
	// held: budgets are taken from before a write, and what a write costs isn't given back.
	mu       sync.Mutex
	patients map[string]*patient // by namespace/name; there while the pod is
	initial  map[string]bool     // the pods of the start that weren't looked at yet
	synced   bool                // all pods of the start are in the queue
	round    int                 // of looking at all pods; the first is 1
	budget   repair.Budget
	reports  repair.Budget
	done     map[ModeResult]int
	untold   int
}

// patient is what is remembered of a pod.
type patient struct {
	uid     types.UID
	initial bool    // it was there at the start
	round   int     // in which its namespace was looked at last
	finding summary // the last one
	told    summary // what was told on the pod, and
	toldAt  time.Time
	waiting string // the limit that it waits for, or empty
	unseen  bool
	known   bool      // a record of it was read
	missing time.Time // since when there is no record, of one that may be ending
}

// summary is what makes a finding another one.
type summary struct {
	verdict repair.Verdict
	reason  repair.Reason
}

func summaryOf(f repair.Finding) summary { return summary{f.Verdict, f.Reason} }

const (
	// workers are how many pods are dealt with at a time.
	workers = 4
	// attempts are how often something is tried, until the pod changes or its turn comes again.
	attempts   = 5
	firstPause = time.Second
	mostPause  = 5 * time.Minute
	// settling is how long the API server may say that a pod runs whose network the node has taken away, and the plugin's record with it.
	settling = 30 * time.Second
)

// New asks nobody yet. errors.Is(err, ErrOptions) holds for the error.
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
		budget: repair.NewBudget(o.Limits),
		// A report counts as a write here, and there is no limit but the one.
		reports: repair.NewBudget(repair.Limits{Writes: o.Reports, PerPod: repair.Limit{Burst: 1}}),
		done:    map[ModeResult]int{},
	}, nil
}

// Run looks after the pods until ctx ends, once. All that was begun has ended when it returns. The error is about an informer that was
// stopped before.
func (c *Controller) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	handler, err := c.options.Informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: c.added,
		UpdateFunc: func(old, now any) {
			if versionOf(old) != versionOf(now) { // else the API server has only said it again
				c.added(now, false)
			}
		},
		DeleteFunc: c.deleted,
	})
	if err != nil {
		return fmt.Errorf("look after the pods of node %s: %w", c.options.Criteria.Node, err)
	}
	defer c.options.Informer.RemoveEventHandler(handler) //nolint:errcheck // it was added
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil // it was told to end
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

// rounds looks at all pods again and again.
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

// Scan has every pod looked at anew, its namespace included, as each resync does. What was given up is tried again.
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
		return // no object: an informer has none
	}
	c.mu.Lock()
	if initial {
		c.initial[key] = true
	}
	c.mu.Unlock()
	c.queue.Forget(key) // it has changed, and has all its attempts again
	c.queue.Add(key)
}

func (c *Controller) deleted(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Forget(key)
		c.queue.Add(key) // the worker forgets it, when it has done with it
	}
}

func versionOf(object any) string {
	if o, isPod := object.(*Object); isPod {
		return string(o.UID) + " " + o.ResourceVersion
	}
	return ""
}

// next deals with one pod. It returns false at the end.
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
	case failed: // it is given up, until the pod changes or its turn comes again
		c.queue.Forget(key)
	case pause > 0:
		c.queue.AddAfter(key, pause)
	default:
		c.queue.Forget(key)
	}
	return true
}

// calmClock is the system's clock without tickers. The queue has one that wakes it up every ten seconds, for timers that don't fire; the
// system's do.
type calmClock struct{ clock.RealClock }

// NewTicker returns a ticker that never ticks.
func (calmClock) NewTicker(time.Duration) clock.Ticker { return silence{} }

type silence struct{}

// C is never ready.
func (silence) C() <-chan time.Time { return nil }

// Stop has nothing to do.
func (silence) Stop() {}
