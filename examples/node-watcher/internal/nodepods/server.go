// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"net"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Server is the API server, and how to speak with it.
type Server struct {
	// URL is https://host:port. To a server of plain http no token is sent.
	URL string
	// TokenFile holds the bearer token; it is read again when it changes. Empty: none is sent.
	TokenFile string
	// CAFile holds the certificates of the CA. Empty: those of the system.
	CAFile string
	// Insecure says not to verify the server's certificate.
	Insecure bool
}

// A connection whose other side is gone is noticed within half a minute, by the kernel.
const (
	dialWithin    = 10 * time.Second
	keepAlive     = 15 * time.Second
	probeInterval = 5 * time.Second
	probes        = 3
)

// Config is the way to the API server, of a program of that version.
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
