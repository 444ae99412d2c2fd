// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/internal/unixsocket"
)

// errRefused is what the source's last message says if it is not about versions.
var errRefused = errors.New("the source refuses this agent")

// conversation is one connection of a client to a source.
type conversation struct {
	client *Client
	number int
	socket net.Conn
	begun  bool // both have said hello
}

// run connects, and talks until the connection or the context ends. The error says why.
func (c *conversation) run(ctx context.Context) (err error) {
	dialer := net.Dialer{Timeout: c.client.options.Timeout}
	if c.socket, err = dialer.DialContext(ctx, "unix", c.client.socket); err != nil {
		return withoutPath(err)
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { _ = c.socket.Close() })() // the error would be that it is closed
	defer c.socket.Close()                                          //nolint:errcheck // likewise
	messages := newLines(c.socket, maxFromSource)
	if err := c.greet(messages); err != nil {
		return err
	}
	parts.Go(func() { cancel(c.listen(messages)) })
	err = c.ask(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx) // which may be a refusal
	}
	return err
}

// withoutPath drops the path from an error, which names it already.
func withoutPath(err error) error {
	if operation := (*net.OpError)(nil); errors.As(err, &operation) {
		return operation.Err
	}
	return err
}

// greet checks who listens before it sends anything, and agrees on a version.
func (c *conversation) greet(messages *lines) error {
	if err := unixsocket.CheckPeer(c.socket); err != nil {
		return err
	}
	if err := c.send(&agentHello{[]int{version1}}); err != nil {
		return err
	}
	if err := c.socket.SetReadDeadline(time.Now().Add(c.client.options.Timeout)); err != nil {
		return err
	}
	line, err := messages.next()
	if err != nil {
		return fmt.Errorf("wait for its hello: %w", err)
	}
	message, err := parse(line, fromSource())
	if err != nil {
		return fmt.Errorf("read its hello: %w", err)
	}
	switch m := message.(type) {
	case *refusal:
		return m.err()
	case *sourceHello:
		if m.Version != version1 {
			return fmt.Errorf("%w: the source chose %d, and this side speaks %d", ErrVersion, m.Version, version1)
		}
	default:
		return fmt.Errorf("%w: the first one of the source is no hello", ErrMessage)
	}
	if err := c.socket.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	c.begun = true
	c.client.mu.Lock()
	c.client.news.begin()
	c.client.wishes.begin()
	c.client.mu.Unlock()
	c.client.options.Observe(Event{Kind: Connected, Connection: c.number})
	return nil
}

func (r *refusal) err() error {
	if r.Reason == reasonVersion {
		return fmt.Errorf("%w: the source speaks %v, and this side %d", ErrVersion, r.Versions, version1)
	}
	return fmt.Errorf("%w: %q, %q", errRefused, bounded(string(r.Reason)), bounded(r.Message))
}

// ask asks the source for what it must do, until the connection ends.
func (c *conversation) ask(ctx context.Context) error {
	for {
		c.client.mu.Lock()
		due, wait := c.client.wishes.due(time.Now())
		asked := c.client.asked
		c.client.mu.Unlock()
		for _, annotation := range due {
			if err := c.send(&annotation); err != nil {
				return err
			}
		}
		if err := sleep(ctx, wait, asked); err != nil {
			return err
		}
	}
}

// sleep waits until the time is over if there is any, for the channel, or for the context, whose
// cause it returns.
func sleep(ctx context.Context, wait time.Duration, woken <-chan struct{}) error {
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-woken:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (c *conversation) send(message any) error {
	return send(c.socket, message, maxFromAgent, c.client.options.Timeout)
}

// listen takes over what the source tells until the connection ends, and returns why it ended.
func (c *conversation) listen(messages *lines) error {
	for {
		line, err := messages.next()
		if err != nil {
			return err
		}
		message, err := parse(line, fromSource())
		if err != nil {
			return err
		}
		if last, is := message.(*refusal); is {
			return last.err()
		}
		if event := c.client.hear(message); event.Kind != "" {
			event.Connection = c.number
			c.client.options.Observe(event)
		}
	}
}

// hear takes over a message, and returns the event that it is, or the zero one.
func (c *Client) hear(message any) Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := message.(type) {
	case *ambient.Namespace:
		c.news.namespace(*m)
	case *ambient.Pod:
		c.news.pod(*slim(*m))
	case *gone:
		c.news.end(m.UID)
		c.wishes.forget(m.UID)
		wake(&c.asked)
	case *complete:
		if living := c.news.completed(); living != nil {
			c.wishes.keep(living)
			wake(&c.asked)
		}
		wake(&c.told)
		return Event{Kind: Completed}
	case *answer:
		uid := c.wishes.answered(*m, time.Now())
		wake(&c.asked)
		if uid != "" && m.Error != "" {
			return Event{Kind: NotAnnotated, UID: uid, Err: fmt.Errorf("the source has not annotated the pod: %s", bounded(m.Error))}
		}
		return Event{}
	}
	wake(&c.told)
	return Event{}
}
