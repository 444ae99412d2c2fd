// SPDX-License-Identifier: Apache-2.0

package fakecluster_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// send sends a request, and returns the answer's status and decoded body.
func send(t *testing.T, method, url, header, value, body string) (status int, answer object) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(header, value)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}

// TestNamespaces lists namespaces, as metadata alone.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-0"})
	cluster.PutNamespace("shop", map[string]string{"mode": "ambient"})
	cluster.PutNamespace("bank", nil)
	const metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for path, want := range map[string]int{"": 2, "?fieldSelector=metadata.name%3Dshop": 1, "?fieldSelector=metadata.name%3Dpark": 0} {
		if status, list := send(t, http.MethodGet, server.URL+"/api/v1/namespaces"+path, "Accept", metadata, ""); status != http.StatusOK || len(list.Items) != want {
			t.Errorf("%q: got %d, %+v", path, status, list)
		}
	}
	cluster.DeleteNamespace("shop")
	if _, list := send(t, http.MethodGet, server.URL+"/api/v1/namespaces", "Accept", metadata, ""); len(list.Items) != 1 {
		t.Errorf("got %+v", list)
	}
	if status, _ := send(t, http.MethodGet, server.URL+"/api/v1/namespaces", "Accept", "application/json", ""); status != http.StatusNotAcceptable {
		t.Errorf("whole namespaces: got %d", status)
	}
}

// TestAnnotations patches those of a pod, and of no other of the same name.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "a", UID: "1", Annotations: map[string]string{"old": "1", "other": "2"}})
	const path, patch = "/api/v1/namespaces/shop/pods/a/status", "application/merge-patch+json"
	for body, want := range map[string]int{
		`{"metadata":{"uid":"2","annotations":{"new":"1"}}}`:                       http.StatusUnprocessableEntity,
		`{"metadata":{"uid":"2","resourceVersion":"1","annotations":{"new":"1"}}}`: http.StatusConflict,
		`{"metadata":{"uid":"1","annotations":{"new":"3","old":null}}}`:            http.StatusOK,
	} {
		if status, answer := send(t, http.MethodPatch, server.URL+path, "Content-Type", patch, body); status != want {
			t.Errorf("%s: got %d, %+v", body, status, answer)
		}
	}
	if status, _ := send(t, http.MethodPatch, server.URL+path, "Content-Type", "application/json", "{}"); status != http.StatusUnsupportedMediaType {
		t.Errorf("another kind of patch: got %d", status)
	}
	pod, _ := cluster.Pod("shop", "a")
	if diff := cmp.Diff(map[string]string{"new": "3", "other": "2"}, pod.Annotations); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestExpire ends a watch with 410, and one that is to go on from before.
func TestExpire(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	server := httptest.NewServer(cluster.Handler())
	t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	response, err := http.Get(server.URL + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	cluster.Expire()
	var event struct {
		Type   string
		Object object
	}
	if err := json.NewDecoder(response.Body).Decode(&event); err != nil || event.Type != "ERROR" || event.Object.Code != http.StatusGone {
		t.Errorf("got %+v, %v", event, err)
	}
	if get(t, server.URL+"/api/v1/pods?watch=true&resourceVersion=1", &event); event.Type != "ERROR" {
		t.Errorf("a watch from before goes on: %+v", event)
	}
}
