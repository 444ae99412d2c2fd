// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Serve answers on the listener until the context ends, then closes it. A connection is for one request, and there are
// 32 at once: for one more, the oldest is closed. The error is nil after such an end.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	// Any pod of the cluster may connect. None keeps a connection, so that the memory of this process isn't theirs.
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { server.Close() }) //nolint:errcheck // Serve below returns then
	defer stop()
	if err := server.Serve(&crowd{Listener: listener, most: mostConnections}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
