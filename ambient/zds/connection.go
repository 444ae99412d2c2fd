// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/meshcni/meshcni/internal/unixsocket"
)

// connection is a proxy that has connected. The server's mu guards number, since, snapshot,
// complete and told.
type connection struct {
	server *Server
	socket *net.UnixConn

	number   int             // of its hello
	since    time.Time       // when it said hello
	snapshot []string        // the pods that it must still be told of before it may be ready
	complete bool            // the snapshot has been sent
	told     map[string]told // the pods that it was told of, and has not been told to forget
}

// told is what a proxy was told of a pod, and its answer.
type told struct {
	number   uint64 // of the change that was sent
	answered bool
	refused  string // the proxy's text; empty if it has acknowledged the pod
	at       time.Time
}

// errNamespaceClosed means that a pod cannot be sent.
var errNamespaceClosed = errors.New("the agent has closed the network namespace of the pod before it deleted the pod")

// errUnasked means that the proxy has sent a message without a request, after which answers could
// no longer be told apart.
var errUnasked = errors.New("it has sent a message that is no answer")

// serve tells the proxy all it must know until the connection or the context ends. The error says
// why it ended.
func (c *connection) serve(ctx context.Context) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { _ = c.socket.Close() })() // the error would be that it is closed
	defer c.socket.Close()                                          //nolint:errcheck // likewise
	if err := c.greet(); err != nil {
		return err
	}
	messages := make(chan []byte)
	reading.Go(func() { cancel(c.read(ctx, messages)) })
	for {
		request, wait, changed := c.next()
		if request.Kind != 0 {
			if err := c.exchange(ctx, request, messages); err != nil {
				return err
			}
			continue
		}
		if err := c.idle(ctx, wait, changed, messages); err != nil {
			return err
		}
	}
}

// greet checks who has connected, and waits for the hello. Only then the connection counts.
func (c *connection) greet() error {
	if err := unixsocket.CheckPeer(c.socket); err != nil {
		return err
	}
	if err := c.socket.SetReadDeadline(time.Now().Add(c.server.options.Timeout)); err != nil {
		return err
	}
	message, err := receive(c.socket)
	if err != nil {
		return fmt.Errorf("wait for its hello: %w", err)
	}
	hello, err := ParseHello(message)
	if err != nil {
		return fmt.Errorf("read its hello: %w", err)
	}
	c.server.join(c)
	c.server.options.Observe(Event{Connection: c.number, Hello: &hello})
	return c.socket.SetReadDeadline(time.Time{})
}

// read passes the proxy's messages on until the connection ends, and returns why it ended.
func (c *connection) read(ctx context.Context, to chan<- []byte) error {
	for {
		message, err := receive(c.socket)
		if err != nil {
			return err
		}
		select {
		case to <- message:
		case <-ctx.Done():
			return nil
		}
	}
}

// idle waits for a change, or until a refused pod may be sent again.
func (c *connection) idle(ctx context.Context, wait time.Duration, changed <-chan struct{}, messages <-chan []byte) error {
	var again <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-changed:
	case <-again:
	case <-messages:
		return errUnasked
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// outgoing is a request with what is needed to send and to note it.
type outgoing struct {
	Request

	number    uint64
	namespace *os.File
}

// next returns the next request; its kind is 0 if there is none before a change, or before the time
// wait is over if that is not 0.
func (c *connection) next() (request outgoing, wait time.Duration, changed <-chan struct{}) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(c.snapshot) > 0 {
		uid := c.snapshot[0]
		c.snapshot = c.snapshot[1:]
		if pod, set := s.pods[uid]; set {
			return c.tell(pod), 0, nil
		}
	}
	if !c.complete {
		c.complete = true
		return outgoing{Request: Request{Kind: KindSnapshotSent}}, 0, nil
	}
	for uid := range c.told {
		if _, set := s.pods[uid]; !set {
			return outgoing{Request: Request{Kind: KindDel, Workload: Workload{UID: uid}}}, 0, nil
		}
	}
	if s.newest() == c {
		request, wait = c.nextPod()
	}
	return request, wait, s.changed
}

// nextPod returns the request about the pod that has waited longest, or that has hung a proxy if no
// other one waits. A pod without a namespace has none: only a snapshot can name it.
func (c *connection) nextPod() (request outgoing, wait time.Duration) {
	var first pod
	for uid, pod := range c.server.pods {
		due, left := c.due(pod, c.told[uid])
		switch {
		case due && (first.number == 0 || pod.compare(first) < 0):
			first = pod
		case left > 0 && (wait == 0 || left < wait):
			wait = left
		}
	}
	if first.number == 0 {
		return outgoing{}, wait
	}
	return c.tell(first), 0
}

// due reports whether a pod is to be sent now or, if the proxy has just refused it, the time left.
func (c *connection) due(p pod, t told) (now bool, left time.Duration) {
	switch {
	case p.namespace == nil:
		return false, 0
	case t.number != p.number:
		return true, 0
	case t.refused == "":
		return false, 0
	}
	left = c.server.options.Again - time.Since(t.at)
	return left <= 0, left
}

// tell returns the request that tells of a pod. From now on the proxy may know the pod.
func (c *connection) tell(p pod) outgoing {
	c.told[p.workload.UID] = told{number: p.number}
	if p.namespace == nil {
		return outgoing{Request: Request{Kind: KindKeep, Workload: Workload{UID: p.workload.UID}}, number: p.number}
	}
	return outgoing{Request{KindAdd, p.workload}, p.number, p.namespace.File()}
}

// exchange sends a request, and waits for the answer.
func (c *connection) exchange(ctx context.Context, request outgoing, messages <-chan []byte) error {
	late := fmt.Errorf("it has not acknowledged %s within %s", request.Kind, c.server.options.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, c.server.options.Timeout, late)
	defer cancel()
	data, err := request.Marshal()
	if err != nil {
		return err // Set has tried it
	}
	deadline, _ := ctx.Deadline() // always set above
	if err := c.socket.SetWriteDeadline(deadline); err != nil {
		return err
	}
	select {
	case <-messages:
		return errUnasked
	default:
	}
	switch err := send(c.socket, data, request.namespace); {
	case errors.Is(err, errNamespaceClosed):
		c.note(request, err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("send %s: %w", request.Kind, err)
	}
	select {
	case message := <-messages:
		ack, err := ParseAck(message)
		if err != nil {
			return fmt.Errorf("read the answer to %s: %w", request.Kind, err)
		}
		c.note(request, ack.Error)
		return nil
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), late) {
			c.noteHung(request)
		}
		return context.Cause(ctx)
	}
}

// noteHung notes that the proxy has not answered to a pod in time.
func (c *connection) noteHung(request outgoing) {
	s := c.server
	s.change(func() {
		if pod, set := s.pods[request.Workload.UID]; set && request.Kind != KindDel {
			pod.hung = s.numbers
			s.pods[request.Workload.UID] = pod
		}
	})
}

// note records the answer to a request. A pod that is to be forgotten is forgotten whatever the
// answer is, as the proxy has nothing more to say about it.
func (c *connection) note(request outgoing, refused string) {
	uid := request.Workload.UID
	c.server.change(func() {
		switch request.Kind {
		case KindAdd, KindKeep:
			c.told[uid] = told{request.number, true, refused, time.Now()}
			if pod, set := c.server.pods[uid]; set && refused == "" {
				pod.hung = 0
				c.server.pods[uid] = pod
			}
		case KindDel:
			delete(c.told, uid)
		case KindSnapshotSent:
		}
	})
	event := Event{Connection: c.number, Request: request.Request}
	if refused != "" {
		event.Err = fmt.Errorf("%w: %s", ErrRefused, refused)
	}
	c.server.options.Observe(event)
}

// receive returns the next message, of any length that the protocol allows.
func receive(socket *net.UnixConn) ([]byte, error) {
	buffer := make([]byte, MaxMessage+1)
	n, _, flags, _, err := socket.ReadMsgUnix(buffer, nil) // the kernel closes the descriptors that come along
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case carriesMore(flags):
		return nil, fmt.Errorf("%w: it carries descriptors, which only the agent may send", ErrMessage)
	case n == 0: // the end, or an empty message, which the kernel does not tell apart
		return nil, errors.New("the proxy has closed it")
	case n > MaxMessage:
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrMessage, MaxMessage)
	}
	return buffer[:n], nil
}
