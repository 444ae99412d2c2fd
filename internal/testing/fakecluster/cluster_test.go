// SPDX-License-Identifier: Apache-2.0

package fakecluster_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

func Example() {
	cluster := fakecluster.New()
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: "1", Node: "a"})
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	response, err := http.Get(server.URL + "/api/v1/namespaces/shop/pods/web-0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	pod, err := podsource.ParsePod(data)
	fmt.Println(pod.Namespace, pod.Name, pod.UID, len(pod.Containers), err)
	// Output: shop web-0 1 2 <nil>
}

// get decodes an answer.
func get(t *testing.T, url string, to any) int {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(to); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

type object struct {
	Metadata struct{ Name, ResourceVersion string }
	Items    []object
	Code     int
}

func TestLists(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "a", Node: "x"}, fakecluster.Pod{Namespace: "shop", Name: "b", Node: "y"})
	var list object
	if get(t, server.URL+"/api/v1/pods?fieldSelector=spec.nodeName%3Dx", &list); len(list.Items) != 1 || list.Items[0].Metadata.Name != "a" {
		t.Errorf("got %+v", list)
	}
	if get(t, server.URL+"/api/v1/pods", &list); len(list.Items) != 2 {
		t.Errorf("got %+v", list)
	}
	cluster.Require("secret")
	if status := get(t, server.URL+"/api/v1/pods", &list); status != http.StatusUnauthorized {
		t.Errorf("got %d without a token", status)
	}
	cluster.Refuse(http.StatusServiceUnavailable)
	if status := get(t, server.URL+"/api/v1/pods", &list); status != http.StatusServiceUnavailable || list.Code != status {
		t.Errorf("got %d %+v", status, list)
	}
}

func TestWatches(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][]string{
		"sendInitialEvents=true": {"ADDED a", "BOOKMARK ", "MODIFIED a", "DELETED a"},
		"resourceVersion=3":      {"MODIFIED a", "DELETED a"},
		"resourceVersion=1":      {"ADDED a", "MODIFIED a", "DELETED a"},
	} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			cluster := fakecluster.New()
			server := httptest.NewServer(cluster.Handler())
			t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
			cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "a", Node: "x"}, fakecluster.Pod{Namespace: "shop", Name: "b", Node: "y"})
			response, err := http.Get(server.URL + "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dx&" + query)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "a", Node: "x"})
			cluster.Delete("shop", "a")
			lines := bufio.NewScanner(response.Body)
			var got []string
			for len(got) < len(want) && lines.Scan() {
				var event struct {
					Type   string
					Object object
				}
				if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
					t.Fatal(err)
				}
				got = append(got, event.Type+" "+event.Object.Metadata.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" || cluster.Watches() != 1 {
				t.Errorf("%d watches: %s", cluster.Watches(), diff)
			}
		})
	}
}

// TestSilentWatches has a watch that gets nothing while the cluster is mute, and a bookmark
// afterwards.
func TestSilentWatches(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	server := httptest.NewServer(cluster.Handler())
	t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	response, err := http.Get(server.URL + "/api/v1/pods?watch=true&allowWatchBookmarks=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	cluster.Mute(true)
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "a"})
	cluster.Bookmark()
	cluster.Mute(false)
	lines := bufio.NewScanner(response.Body)
	var got []string
	for len(got) < 2 && lines.Scan() {
		var event struct{ Type string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Type)
	}
	if diff := cmp.Diff([]string{"ADDED", "BOOKMARK"}, got); diff != "" {
		t.Error(diff)
	}
}
