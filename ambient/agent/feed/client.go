// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// The pauses between two attempts, to connect and to have a pod annotated.
const (
	firstPause        = 100 * time.Millisecond
	longestPause      = 5 * time.Second
	firstAnnotation   = time.Second
	longestAnnotation = time.Minute
)

// ClientOptions are the settings of a [Client]. The zero value is usable.
type ClientOptions struct {
	// Timeout is how long the source may take for its hello, and to receive a message; 10 s if zero.
	Timeout time.Duration
	// Backoff says how long to wait after the given number of failed attempts to connect, the first
	// being 1. When nil, pauses start at 100 ms, double up to 5 s, and vary by a fifth.
	Backoff func(failures int) time.Duration
	// AnnotateBackoff says the same of the source's failed attempts to annotate a pod. When nil,
	// pauses start at 1 s, double up to 1 min, and vary by a fifth.
	AnnotateBackoff func(failures int) time.Duration
	// Observe is called for each [Event], from several goroutines. It may be nil.
	Observe func(Event)
}

// Client is the feed and the annotator of an agent. Its methods may be called concurrently. Create
// it with [NewClient].
type Client struct {
	options ClientOptions
	socket  string

	mu     sync.Mutex
	news   *news
	wishes wishes
	told   chan struct{} // closed at the next news
	asked  chan struct{} // closed when wishes change
}

// NewClient returns a client of the source that listens on a socket. The caller then calls
// [Client.Run].
func NewClient(socket string, o ClientOptions) *Client {
	o.Timeout = cmp.Or(o.Timeout, defaultPatience)
	if o.Backoff == nil {
		o.Backoff = growing(firstPause, longestPause)
	}
	if o.AnnotateBackoff == nil {
		o.AnnotateBackoff = growing(firstAnnotation, longestAnnotation)
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	return &Client{
		options: o, socket: socket, news: newNews(), wishes: wishes{pause: o.AnnotateBackoff, all: map[string]*wish{}},
		told: make(chan struct{}), asked: make(chan struct{}),
	}
}

// growing returns pauses that double, and vary by a fifth so that two agents do not ask at once.
func growing(first, longest time.Duration) func(failures int) time.Duration {
	return func(failures int) time.Duration {
		pause := min(first<<min(failures-1, 20), longest)
		return pause*4/5 + rand.N(pause*2/5)
	}
}

// Run keeps a connection to the source until the context ends. While the source is away, or is not
// root's or this process's user's, it tries again. Run may be called once.
func (c *Client) Run(ctx context.Context) {
	failures := 0
	for number := 1; ; number++ {
		conversation := &conversation{client: c, number: number}
		err := conversation.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if conversation.begun {
			failures = 0
		}
		failures++
		c.options.Observe(Event{Kind: Disconnected, Connection: number, Err: fmt.Errorf("source of pods at %s: %w", c.socket, err)})
		select {
		case <-time.After(c.options.Backoff(failures)):
		case <-ctx.Done():
			return
		}
	}
}

// Next waits for news of the source, and returns all of it. A pod that a new snapshot does not name
// any more is gone when that snapshot is complete, and not before. While the source is away, Next
// waits: its only error is the cause of the context's end. One goroutine calls it.
func (c *Client) Next(ctx context.Context) (ambient.Change, error) {
	for {
		c.mu.Lock()
		change, is := c.news.take()
		told := c.told
		c.mu.Unlock()
		if is {
			return change, nil
		}
		select {
		case <-told:
		case <-ctx.Done():
			return ambient.Change{}, context.Cause(ctx)
		}
	}
}

// Annotate takes over that the pod gets the status, or none with [ambient.NoStatus], and returns at
// once. The latest status of each pod is kept until the source confirms it or the pod is gone. The
// source is asked again after a new connection, and after a failure. A pod without a UID or a name
// is reported, and nothing else.
func (c *Client) Annotate(pod interception.Pod, status ambient.Status) {
	if _, err := marshal(&annotation{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Status: status}, maxFromAgent); err != nil {
		c.options.Observe(Event{Kind: NotAnnotated, UID: pod.UID, Err: err})
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wishes.add(pod, status)
	wake(&c.asked)
}

// AwaitAnnotated waits until the source has confirmed the statuses of these pods, or of all if no
// UID is given. The error wraps the cause of the context's end.
func (c *Client) AwaitAnnotated(ctx context.Context, uids ...string) error {
	for {
		c.mu.Lock()
		left, asked := c.wishes.left(uids), c.asked
		c.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-asked:
		case <-ctx.Done():
			return fmt.Errorf("the source has not confirmed the statuses of %d pods: %w", left, context.Cause(ctx))
		}
	}
}

// wake wakes those that wait for a channel to be closed. The caller holds mu.
func wake(waiting *chan struct{}) {
	close(*waiting)
	*waiting = make(chan struct{})
}
