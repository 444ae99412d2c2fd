// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// served is an API server with a client that trusts it.
type served struct {
	*httptest.Server
	client *http.Client
}

func serveTestPod(t *testing.T) served {
	t.Helper()
	pod := podManifest{Pod: interception.Pod{Namespace: "shop", Name: "cart"}, json: []byte(`{"kind":"Pod"}`)}
	other := podManifest{Pod: interception.Pod{Namespace: "warehouse", Name: "cart"}, json: []byte(`{"kind":"Other"}`)}
	server := httptest.NewTLSServer(podHandler("secret", other, pod))
	t.Cleanup(server.Close)
	return served{server, server.Client()}
}

func (s served) ask(t *testing.T, method, path, authorization string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", authorization)
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return response.StatusCode, object
}

func TestAPIServer(t *testing.T) {
	t.Parallel()
	server := serveTestPod(t)
	for _, test := range []struct {
		name, method, path, authorization string
		status                            int
		kind                              string
	}{
		{"the pod", "GET", "/api/v1/namespaces/shop/pods/cart", "Bearer secret", http.StatusOK, "Pod"},
		{"a pod of the same name", "GET", "/api/v1/namespaces/warehouse/pods/cart", "Bearer secret", http.StatusOK, "Other"},
		{"another token", "GET", "/api/v1/namespaces/shop/pods/cart", "Bearer secrets", http.StatusUnauthorized, "Status"},
		{"no token", "GET", "/api/v1/namespaces/shop/pods/cart", "", http.StatusUnauthorized, "Status"},
		{"another pod", "GET", "/api/v1/namespaces/shop/pods/other", "Bearer secret", http.StatusNotFound, "Status"},
		{"another namespace", "GET", "/api/v1/namespaces/other/pods/cart", "Bearer secret", http.StatusNotFound, "Status"},
		{"the daemon's DaemonSet", "GET", "/apis/apps/v1/namespaces/istio-system/daemonsets/istio-cni-node", "Bearer secret", http.StatusOK, "DaemonSet"},
		{"its namespace", "GET", "/api/v1/namespaces/istio-system", "Bearer secret", http.StatusOK, "Namespace"},
		{"all pods", "GET", "/api/v1/pods", "Bearer secret", http.StatusForbidden, "Status"},
		{"another verb", "DELETE", "/api/v1/namespaces/shop/pods/cart", "Bearer secret", http.StatusForbidden, "Status"},
	} {
		status, object := server.ask(t, test.method, test.path, test.authorization)
		if status != test.status || object["kind"] != test.kind {
			t.Errorf("%s: status %d, %v, want %d and a %s", test.name, status, object, test.status, test.kind)
		}
	}
}
