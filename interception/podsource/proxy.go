// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// forwards reports whether the proxy passes on the request itself, as it does with plain HTTP. To a
// server with TLS the proxy makes a tunnel.
func (c connection) forwards() bool { return c.proxy != nil && c.server.Scheme == "http" }

// authorize gives the proxy its credential, if its URL has one.
func (c connection) authorize(request *http.Request) {
	if c.proxy.User == nil {
		return
	}
	password, _ := c.proxy.User.Password()
	credential := http.Request{Header: http.Header{}}
	credential.SetBasicAuth(c.proxy.User.Username(), password)
	request.Header.Set("Proxy-Authorization", credential.Header.Get("Authorization"))
}

// dialProxy connects to the proxy, and through it to a server with TLS.
func (c connection) dialProxy(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	way, err := dialer.DialContext(ctx, "tcp", address(c.proxy))
	if err != nil {
		return nil, err
	}
	if c.proxy.Scheme == "https" {
		config := c.tls.Clone()
		config.ServerName, config.Certificates = c.proxy.Hostname(), nil // the pair is for the server alone
		if way, err = handshake(ctx, way, config); err != nil {
			return nil, err
		}
	}
	if c.forwards() {
		return way, nil
	}
	if err := c.tunnel(ctx, way); err != nil {
		return nil, errors.Join(err, way.Close())
	}
	return way, nil
}

// tunnel asks the proxy to connect to the server (CONNECT; RFC 9110, 9.3.6).
func (c connection) tunnel(ctx context.Context, way net.Conn) error {
	defer endWith(ctx, way)()
	server := address(c.server)
	request := &http.Request{
		Method: http.MethodConnect, URL: &url.URL{Opaque: server}, Host: server, Header: http.Header{"User-Agent": {""}}, // none
	}
	c.authorize(request)
	text, err := encoded(request.Write)
	if err != nil {
		return err
	}
	wire := newWire(way)
	response, err := wire.ask(request, text) //nolint:bodyclose // the tunnel goes on after the response
	switch {
	case err != nil:
		return fmt.Errorf("the proxy: %w", err)
	case response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("the proxy answers with status %d", response.StatusCode)
	case wire.reader.Buffered() > 0: // the server can't have sent anything yet: the client speaks first
		return errors.New("the proxy sends more than its answer")
	}
	return nil
}
