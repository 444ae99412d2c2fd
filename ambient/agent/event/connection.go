// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"github.com/meshcni/meshcni/internal/unixsocket"
)

// listener accepts connections of root and of this process's user.
type listener struct {
	net.Listener
	refuse func(error)
}

func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		stream, is := conn.(*net.UnixConn)
		if err = unixsocket.CheckPeer(conn); err == nil && is {
			return &connection{UnixConn: stream}, nil
		}
		l.refuse(err)
		_ = conn.Close() // nothing was written
	}
}

// connection keeps the descriptor that comes with a request.
type connection struct {
	*net.UnixConn

	mu        sync.Mutex
	namespace *os.File
	received  int // descriptors so far; one too many for those that had no room
}

// errDescriptors is the end of a connection that carries more than a namespace.
var errDescriptors = errors.New("the request carries more than one descriptor")

func (c *connection) Read(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	n, files, more, err := receive(c.UnixConn, data)
	if n == 0 && err == nil {
		err = io.EOF
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, file := range files {
		if c.received++; c.received == 1 {
			c.namespace = file
		} else {
			_ = file.Close() // nothing was written
		}
	}
	if more || c.received > 1 {
		return 0, errDescriptors
	}
	return n, err
}

// take returns the namespace, which the caller then owns; nil if none has come.
func (c *connection) take() *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	namespace := c.namespace
	c.namespace = nil
	return namespace
}

// Close closes the connection, and the namespace unless a handler has taken it.
func (c *connection) Close() error {
	if namespace := c.take(); namespace != nil {
		_ = namespace.Close() // nothing was written
	}
	return c.UnixConn.Close()
}

type connectionKey struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

func connectionOf(ctx context.Context) *connection {
	conn, _ := ctx.Value(connectionKey{}).(*connection)
	return conn
}
