// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
)

const (
	// quiet is how long a proxy that ends waits for another connection before it closes its
	// listeners. The node learns at the same time that another proxy is ready and that this one
	// ends, and on a busy machine clients and agent may pause for a second: what comes after the
	// listeners have gone is dropped.
	quiet = 3 * time.Second
	// drainTime is how long connections may then go on.
	drainTime = 5 * time.Second
)

// transparent runs the proxy of a node that captures in its own namespace until the context ends,
// and then until its connections have ended. It has no tunnels, and treats connections from other
// proxies like all others.
func transparent(ctx context.Context) error {
	taken := make(chan struct{}, 1) // a value for each connection; nothing waits for it
	proxy, err := ambienttest.StartNodeProxy(ambienttest.NodeProxyOptions{
		Numbers: ambient.IstioNodeNumbers(),
		Observe: func(which ambienttest.Taken, err error) {
			if err != nil {
				fmt.Fprintf(os.Stderr, "the connection %s: %v\n", which, err)
			}
			select {
			case taken <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	defer proxy.Close() //nolint:errcheck // it returns nil
	failures := make(chan error, 1)
	health := &http.Server{
		Addr: net.JoinHostPort("", strconv.Itoa(healthPort)), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
	}
	go func() { failures <- health.ListenAndServe() }()
	select {
	case err := <-failures:
		return err
	case <-ctx.Done():
	}
	for waiting := true; waiting; {
		select {
		case <-taken:
		case <-time.After(quiet):
			waiting = false
		}
	}
	draining, cut := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cut()
	proxy.Drain(draining)
	return nil
}
