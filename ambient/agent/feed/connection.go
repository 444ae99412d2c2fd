// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/meshcni/meshcni/internal/unixsocket"
)

// connection is an agent that has connected to a server.
type connection struct {
	server   *Server
	socket   net.Conn
	number   int
	audience *audience
}

// serve tells the agent all it must know until the connection or the context ends. The error says
// why it ended.
func (c *connection) serve(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.socket.Close() })() // the error would be that it is closed
	defer c.socket.Close()                                          //nolint:errcheck // likewise
	messages := newLines(c.socket, maxFromAgent)
	if err := c.greet(messages); err != nil {
		return c.refuse(err)
	}
	c.observe(Connected, "", nil)
	answers, ended := make(chan *answer), make(chan error, 1)
	parts.Go(func() { ended <- c.hear(ctx, messages, answers, &parts) })
	for {
		changed, err := c.tellNews()
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case answer := <-answers:
			if err := c.send(answer); err != nil {
				return err
			}
		case err := <-ended:
			return c.refuse(err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// greet checks who has connected, and agrees on a version.
func (c *connection) greet(messages *lines) error {
	if err := unixsocket.CheckPeer(c.socket); err != nil {
		return err
	}
	if err := c.socket.SetReadDeadline(time.Now().Add(c.server.options.Timeout)); err != nil {
		return err
	}
	hello, err := receive[*agentHello](messages, fromAgent())
	if err != nil {
		return fmt.Errorf("wait for its hello: %w", err)
	}
	if !slices.Contains(hello.Versions, version1) {
		return fmt.Errorf("%w: the agent speaks %v, and this side %d", ErrVersion, hello.Versions, version1)
	}
	if err := c.send(&sourceHello{version1}); err != nil {
		return err
	}
	return c.socket.SetReadDeadline(time.Time{})
}

// tellNews tells what the agent has not been told yet, and returns a channel that is closed when
// there may be more.
func (c *connection) tellNews() (changed <-chan struct{}, err error) {
	news, changed := c.server.view.news(c.audience)
	for _, message := range news {
		if err := c.send(message); err != nil {
			return nil, err
		}
		if _, is := message.(*complete); is {
			c.observe(Completed, "", nil)
		}
	}
	return changed, nil
}

func (c *connection) send(message any) error {
	return send(c.socket, message, maxFromSource, c.server.options.Timeout)
}

// hear has the agent's requests done until the connection ends, and returns why it ended.
func (c *connection) hear(ctx context.Context, messages *lines, answers chan<- *answer, parts *sync.WaitGroup) error {
	places := make(chan struct{}, maxAnnotations)
	for {
		line, err := messages.next()
		if err != nil {
			return err
		}
		message, err := parse(line, fromAgent())
		if err != nil {
			return err
		}
		asked, is := message.(*annotation)
		if !is { // an addition of a later release
			continue
		}
		select {
		case places <- struct{}{}: // the agent waits, because no more is read
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		parts.Go(func() {
			defer func() { <-places }()
			select {
			case answers <- c.annotate(ctx, asked):
			case <-ctx.Done():
			}
		})
	}
}

// annotate has a request done.
func (c *connection) annotate(ctx context.Context, asked *annotation) *answer {
	ctx, cancel := context.WithTimeout(ctx, annotateWithin)
	defer cancel()
	release, err := c.server.turns.take(ctx, asked.UID)
	if err == nil {
		defer release()
		err = c.server.options.Annotator.Annotate(ctx, asked.pod(), asked.Status)
	}
	switch {
	case err == nil:
		return &answer{Number: asked.Number, Result: resultDone}
	case errors.Is(err, ErrPodGone):
		return &answer{Number: asked.Number, Result: resultGone}
	}
	c.observe(NotAnnotated, asked.UID, err)
	return &answer{Number: asked.Number, Result: resultAgain, Error: bounded(err.Error())}
}

// refuse tells the agent why the connection ends, if the agent has to know, and returns the error.
func (c *connection) refuse(err error) error {
	last := refusal{Message: bounded(err.Error())}
	switch peer := (*unixsocket.PeerError)(nil); {
	case errors.As(err, &peer):
		last.Reason = reasonForbidden
	case errors.Is(err, ErrVersion):
		last.Reason, last.Versions = reasonVersion, []int{version1}
	case errors.Is(err, ErrMessage):
		last.Reason = reasonMessage
	default:
		return err
	}
	return errors.Join(err, c.send(&last))
}

func (c *connection) observe(kind EventKind, uid string, err error) {
	c.server.options.Observe(Event{Kind: kind, Connection: c.number, UID: uid, Err: err})
}
