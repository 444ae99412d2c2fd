// SPDX-License-Identifier: Apache-2.0

package agentserver

import (
	"net"
	"sync"
)

// boundedListener has a bounded number of connections open at once.
type boundedListener struct {
	net.Listener
	places chan struct{} // one element for each open connection
	closed chan struct{}
	close  func()
}

func newBoundedListener(l net.Listener, most int) *boundedListener {
	closed := make(chan struct{})
	return &boundedListener{l, make(chan struct{}, most), closed, sync.OnceFunc(func() { close(closed) })}
}

// Accept waits for a place, then for a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	free := sync.OnceFunc(func() { <-l.places })
	connection, err := l.Listener.Accept()
	if err != nil {
		free()
		return nil, err
	}
	return boundedConnection{connection, free}, nil
}

// Close ends Accept too.
func (l *boundedListener) Close() error {
	l.close()
	return l.Listener.Close()
}

// boundedConnection gives its place back.
type boundedConnection struct {
	net.Conn
	free func()
}

// Close may be called repeatedly.
func (c boundedConnection) Close() error {
	defer c.free()
	return c.Conn.Close()
}

func unwrapped(c net.Conn) net.Conn {
	if bounded, ok := c.(boundedConnection); ok {
		return bounded.Conn
	}
	return c
}
