// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/meshcni/meshcni/internal/originaldst"
)

// The ports of Istio's proxy (istio.io, Ports used by Istio).
const (
	outboundPort = 15001
	inboundPort  = 15006
	healthPort   = 15021
)

// destinationKey is the context key of a connection's original destination.
type destinationKey struct{}

// proxy forwards captured connections until the context ends.
func proxy(ctx context.Context, name string) error {
	failures := make(chan error)
	// A dual-stack socket does not learn IPv4's original destination.
	for _, family := range []string{"tcp4", "tcp6"} {
		for port, direction := range map[int]string{outboundPort: "outbound", inboundPort: "inbound"} {
			listener, err := (&net.ListenConfig{}).Listen(ctx, family, net.JoinHostPort("", strconv.Itoa(port)))
			if err != nil {
				return err
			}
			server := &http.Server{Handler: relay(direction, name, direction == "inbound"), ConnContext: withDestination, ReadHeaderTimeout: time.Minute}
			go func() { failures <- server.Serve(listener) }()
		}
	}
	health := &http.Server{
		Addr: net.JoinHostPort("", strconv.Itoa(healthPort)), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
	}
	go func() { failures <- health.ListenAndServe() }()
	select {
	case err := <-failures:
		return err
	case <-ctx.Done():
		return nil
	}
}

// withDestination stores a connection's original destination.
func withDestination(ctx context.Context, connection net.Conn) context.Context {
	tcp, ok := connection.(*net.TCPConn)
	if !ok {
		return ctx
	}
	destination, err := originaldst.Of(tcp)
	if err != nil {
		fmt.Fprintf(os.Stderr, "the original destination of a connection from %s: %v\n", connection.RemoteAddr(), err)
		return ctx
	}
	return context.WithValue(ctx, destinationKey{}, destination)
}

// relay forwards requests to their original destination. Inbound requests go to the application
// from Istio's passthrough address, so that they are not captured again.
func relay(direction, name string, inbound bool) http.Handler {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		destination, ok := ctx.Value(destinationKey{}).(netip.AddrPort)
		if !ok || !destination.IsValid() {
			return nil, fmt.Errorf("the original destination of this connection is unknown")
		}
		var dialer net.Dialer
		if inbound {
			from := netip.MustParseAddr("127.0.0.6")
			if destination.Addr().Is6() {
				from = netip.MustParseAddr("::6")
			}
			dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
		return dialer.DialContext(ctx, "tcp", destination.String())
	}
	return &httputil.ReverseProxy{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host
			r.Out.Header.Add(viaHeader, direction+" "+name)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			fmt.Fprintf(os.Stderr, "%s request from %s: %v\n", direction, r.RemoteAddr, err)
			http.Error(w, fmt.Sprintf("%s %s: %v", direction, name, err), http.StatusBadGateway)
		},
	}
}
