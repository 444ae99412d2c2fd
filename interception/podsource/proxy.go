// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// useProxy lets the transport reach the server through the proxy: by a tunnel where the server has TLS, and otherwise by handing the request
// to the proxy.
func (c connection) useProxy(transport *http.Transport) {
	proxy := *c.proxy
	if proxy.Scheme == "https" {
		// The transport would show the client certificate to the proxy, and expect the server's name in the proxy's certificate. So it is told
		// of a proxy without TLS, and given connections that have it.
		config := c.tls.Clone()
		config.ServerName, config.Certificates = proxy.Hostname(), nil
		transport.DialContext = (&tls.Dialer{Config: config}).DialContext
		if proxy.Port() == "" {
			proxy.Host = net.JoinHostPort(proxy.Hostname(), "443")
		}
		proxy.Scheme = "http"
	}
	transport.Proxy = http.ProxyURL(&proxy)
	transport.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the proxy answers with status %d", response.StatusCode)
		}
		return nil
	}
}
