// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/kubeconfig"
)

func TestServerURL(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ protocol, host, port, want string }{
		{"", "10.96.0.1", "443", "https://10.96.0.1:443"},
		{"https", "10.96.0.1", "6443", "https://10.96.0.1:6443"},
		{"http", "127.0.0.1", "8080", "http://127.0.0.1:8080"},
		{"", "fd00:10:96::1", "443", "https://[fd00:10:96::1]:443"},
		{"", "[fd00:10:96::1]", "443", "https://[fd00:10:96::1]:443"},
		{"", "::1", "65535", "https://[::1]:65535"},
		{"", "::ffff:10.96.0.1", "443", "https://[::ffff:10.96.0.1]:443"},
		{"", "kubernetes.default.svc", "443", "https://kubernetes.default.svc:443"},
		{"", "api.Example-1.com.", "1", "https://api.Example-1.com.:1"},
		{"", "localhost", "443", "https://localhost:443"},
	} {
		got, err := kubeconfig.ServerURL(tc.protocol, tc.host, tc.port)
		if err != nil || got.String() != tc.want {
			t.Errorf("ServerURL(%q, %q, %q) is %v, %v; want %s", tc.protocol, tc.host, tc.port, got, err, tc.want)
			continue
		}
		if again, err := url.Parse(got.String()); err != nil || *again != *got {
			t.Errorf("%s is not parsed to what it was: %v, %v", got, again, err)
		}
	}
}

func TestServerURLRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ protocol, host, port, want string }{
		{"tcp", "10.96.0.1", "443", `the protocol is "tcp": use https`},
		{"HTTPS", "10.96.0.1", "443", `the protocol is "HTTPS": use https`},
		{"", "", "443", "KUBERNETES_SERVICE_HOST"},
		{"", "10.96.0.1", "", "KUBERNETES_SERVICE_PORT"},
		{"", "10.96.0.1", "0", `the port is "0"`},
		{"", "10.96.0.1", "65536", `the port is "65536"`},
		{"", "10.96.0.1", "+443", `the port is "+443"`},
		{"", "10.96.0.1", "tcp://10.96.0.1:443", `the port is "tcp://10.96.0.1:443"`},
		{"", "[10.96.0.1]", "443", "brackets are for IPv6 only"},
		{"", "[kubernetes]", "443", "brackets are for IPv6 only"},
		{"", "[fd00::1", "443", "brackets are for IPv6 only"},
		{"", "[[fd00::1]]", "443", "brackets are for IPv6 only"},
		{"", "fe80::1%eth0", "443", "has a zone"},
		{"", "[fe80::1%eth0]", "443", "brackets are for IPv6 only"},
		{"", "10.96.0", "443", "neither an IP address nor a DNS name"},
		{"", "10.96.0.256", "443", "neither an IP address nor a DNS name"},
		{"", "https://10.96.0.1", "443", "without protocol, port and path"},
		{"", "10.96.0.1:443", "443", "without protocol, port and path"},
		{"", "api/k8s", "443", "nor a DNS name"},
		{"", "u@api", "443", "nor a DNS name"},
		{"", "api\n", "443", "nor a DNS name"},
		{"", "a..b", "443", "nor a DNS name"},
		{"", "-a", "443", "nor a DNS name"},
		{"", strings.Repeat("a", 64), "443", "nor a DNS name"},
		{"", strings.Repeat("a.", 128), "443", "nor a DNS name"},
	} {
		got, err := kubeconfig.ServerURL(tc.protocol, tc.host, tc.port)
		if !errors.Is(err, kubeconfig.ErrServer) || !strings.Contains(err.Error(), tc.want) || got != nil {
			t.Errorf("ServerURL(%q, %q, %q) is %v, %v; want an error with %q", tc.protocol, tc.host, tc.port, got, err, tc.want)
		}
	}
}
