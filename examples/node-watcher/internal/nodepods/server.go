// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"fmt"
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
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

// listWatch lists and watches the node's pods.
func (s Server) listWatch(node, version string) (*cache.ListWatch, error) {
	config := &rest.Config{
		Host: s.URL, APIPath: "/api", UserAgent: "meshcni-node-watcher/" + version, DisableCompression: true,
		ContentConfig: rest.ContentConfig{
			GroupVersion: &schema.GroupVersion{Version: "v1"}, NegotiatedSerializer: codecs(), ContentType: "application/json",
		},
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
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", s.URL, err)
	}
	return cache.NewListWatchFromClient(client, "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node)), nil
}
