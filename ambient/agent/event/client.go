// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/unixsocket"
)

// Enrol hands the agent at a socket the open namespace of a new pod, and waits until the pod is as
// wanted. It returns the agent's decision: a pod that is not captured is not the agent's. The
// caller still owns the namespace.
//
// The context should have a deadline: the agent is asked to answer a tenth of the time before it.
// The error is an [*Error] that the agent has reported, a [*unixsocket.PeerError] if the socket is
// another user's, or that of the connection; fs.ErrNotExist and ECONNREFUSED mean that no agent is
// there.
func Enrol(ctx context.Context, socket string, pod Pod, namespace *os.File) (interception.Decision, error) {
	decision, err := enrol(ctx, socket, pod, namespace)
	if err != nil {
		return decision, fmt.Errorf("ask the agent at %s about pod %s: %w", socket, pod, err)
	}
	return decision, nil
}

func enrol(ctx context.Context, socket string, pod Pod, namespace *os.File) (interception.Decision, error) {
	r := request{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Addresses: pod.Addresses}
	if deadline, is := ctx.Deadline(); is {
		r.Timeout = (time.Until(deadline) * 9 / 10).String()
	}
	body, err := json.Marshal(r)
	if err != nil {
		return interception.Decision{}, err
	}
	message, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/v1/enrol", bytes.NewReader(body))
	if err != nil {
		return interception.Decision{}, err
	}
	message.Header.Set("Content-Type", "application/json")
	answer, err := transportTo(socket, namespace).RoundTrip(message)
	if err != nil {
		return interception.Decision{}, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	if body, err = readAll(answer.Body); err != nil {
		return interception.Decision{}, err
	}
	return parseAnswer(answer.StatusCode, body)
}

// transportTo returns what makes one connection to the agent at a socket, with a namespace if there
// is one (not nil).
func transportTo(socket string, namespace *os.File) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, socket, namespace) },
	}
}

// dial connects to the agent. The first bytes that are written carry the namespace.
func dial(ctx context.Context, socket string, namespace *os.File) (net.Conn, error) {
	conn, err := new(net.Dialer).DialUnix(ctx, "unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := unixsocket.CheckPeer(conn); err != nil {
		_ = conn.Close() // nothing was written
		return nil, err
	}
	if namespace == nil {
		return conn, nil
	}
	return &carrier{UnixConn: conn, namespace: namespace}, nil
}

// carrier is a connection whose first bytes carry a descriptor.
type carrier struct {
	*net.UnixConn
	namespace *os.File
	first     sync.Once
}

func (c *carrier) Write(data []byte) (n int, err error) {
	first := false
	c.first.Do(func() {
		first = true
		n, err = send(c.UnixConn, data, c.namespace)
	})
	if first {
		if err == nil && n < len(data) {
			more, err := c.UnixConn.Write(data[n:])
			return n + more, err
		}
		return n, err
	}
	return c.UnixConn.Write(data)
}
