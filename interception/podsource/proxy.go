// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"encoding/base64"
	"errors"
	"net"

	"github.com/meshcni/meshcni/internal/http1"
)

// forwards says whether a proxy is to pass the request on, as it does with plain HTTP. To a server with TLS it makes a tunnel.
func (c connection) forwards() bool { return c.proxy != nil && c.server.Scheme == "http" }

// proxyHeader has the credential for the proxy, if its URL has one.
func (c connection) proxyHeader() []http1.Field {
	if c.proxy.User == nil {
		return nil
	}
	password, _ := c.proxy.User.Password()
	credential := base64.StdEncoding.EncodeToString([]byte(c.proxy.User.Username() + ":" + password))
	return []http1.Field{{Name: "Proxy-Authorization", Value: "Basic " + credential}}
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
	if err := bounds().Tunnel(ctx, way, address(c.server), c.proxyHeader()...); err != nil {
		return nil, errors.Join(err, way.Close())
	}
	return way, nil
}
