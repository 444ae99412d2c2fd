// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"net"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Server is the address of the API server, and the credentials to use.
type Server struct {
	// URL is https://host:port. No token is sent over plain http.
	URL string
	// TokenFile holds the bearer token; it is read again when it changes. If it is empty, no token
	// is sent.
	TokenFile string
	// CAFile holds the certificates of the CA; empty for those of the system.
	CAFile string
	// Insecure disables the verification of the server's certificate.
	Insecure bool
}

// The kernel detects within half a minute that the other side of a connection is gone.
const (
	dialWithin    = 10 * time.Second
	keepAlive     = 15 * time.Second
	probeInterval = 5 * time.Second
	probes        = 3
)

// Config returns the client configuration of a program of that version.
func (s Server) Config(version string) *rest.Config {
	config := &rest.Config{
		Host: s.URL, UserAgent: "meshcni-node-watcher/" + version, DisableCompression: true,
		TLSClientConfig: rest.TLSClientConfig{NextProtos: []string{"http/1.1"}},
		Dial: (&net.Dialer{Timeout: dialWithin, KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAlive, Interval: probeInterval, Count: probes,
		}}).DialContext,
	}
	if strings.HasPrefix(s.URL, "https:") {
		config.BearerTokenFile = s.TokenFile
		config.Insecure = s.Insecure
		if !s.Insecure {
			config.CAFile = s.CAFile
		}
	}
	return config
}
