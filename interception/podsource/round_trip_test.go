// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/meshcni/meshcni/interception/podsource"
)

func TestServerOfPlainHTTPGetsNoCredential(t *testing.T) {
	t.Parallel()
	pod := string(injected(t))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("got credential %s", got)
		}
		answer(http.StatusOK, pod)(w, r, 0)
	}))
	t.Cleanup(server.Close)
	source := podsource.APIServer{Kubeconfig: writeFile(t, kubeconfig(server.URL, nil, "token: "+token))}
	if _, err := source.Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
}

func TestServerOnIPv6(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6 loopback:", err)
	}
	pod := string(injected(t))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(http.StatusOK, pod)(w, r, 0)
	}))
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
	if u, err := url.Parse(server.URL); err != nil || u.Hostname() != "::1" {
		t.Fatalf("got URL %s, %v", server.URL, err)
	}
	if _, err := sourceFor(t, server).Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
}
