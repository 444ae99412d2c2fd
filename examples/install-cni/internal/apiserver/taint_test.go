// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/install-cni/internal/apiserver"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

const (
	key   = "meshcni.io/not-ready"
	ours  = `{"key":"meshcni.io/not-ready","effect":"NoSchedule"}`
	ours2 = `{"key":"meshcni.io/not-ready","effect":"NoExecute","value":"x"}`
	other = `{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule","timeAdded":"2026-03-04T05:06:07Z"}`
)

func taintOf(t testing.TB, cluster *fakecluster.Cluster) apiserver.Taint {
	t.Helper()
	server := httptest.NewServer(cluster.Handler())
	t.Cleanup(server.Close)
	location, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return apiserver.Taint{Account: apiserver.Account{Server: location}, Node: "a", Key: key}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		taints, left []string
		removed      bool
		patches      int
	}{
		"alone":                 {[]string{ours}, nil, true, 1},
		"among others":          {[]string{other, ours}, []string{other}, true, 1},
		"with every effect":     {[]string{ours, other, ours2}, []string{other}, true, 1},
		"not there":             {[]string{other}, []string{other}, false, 0},
		"of a node without any": {nil, nil, false, 0},
	} {
		cluster := fakecluster.New()
		cluster.Taint("a", test.taints...)
		removed, err := taintOf(t, cluster).Remove(t.Context())
		patches := len(cluster.Writes())
		if diff := cmp.Diff(test.left, cluster.Taints("a")); diff != "" || err != nil || removed != test.removed || patches != test.patches {
			t.Errorf("%s: %v, %v, %d patches %s", name, removed, err, patches, diff)
		}
	}
}

// TestRemoveBesideOthers: another program adds a taint between the read and the patch, once and for
// ever.
func TestRemoveBesideOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ times, patches, left int }{"once": {1, 2, 1}, "for ever": {100, 5, 6}} {
		cluster, added := fakecluster.New(), 0
		cluster.Taint("a", ours)
		cluster.Answer(func(r *http.Request) int {
			if r.Method == http.MethodPatch && added < test.times {
				added++
				cluster.Taint("a", append(cluster.Taints("a"), other)...)
			}
			return 0
		})
		removed, err := taintOf(t, cluster).Remove(t.Context())
		if removed != (err == nil) || removed != (test.times == 1) || len(cluster.Writes()) != test.patches || len(cluster.Taints("a")) != test.left ||
			err != nil && !strings.Contains(err.Error(), "kubectl taint nodes a meshcni.io/not-ready-") {
			t.Errorf("%s: %v, %v after %d patches, left %v", name, removed, err, len(cluster.Writes()), cluster.Taints("a"))
		}
	}
}

func TestRemoveIsRefused(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusForbidden: "may not get nodes", http.StatusServiceUnavailable: "answers 503", http.StatusNotFound: "",
	} {
		cluster := fakecluster.New()
		cluster.Refuse(status)
		removed, err := taintOf(t, cluster).Remove(t.Context())
		if removed || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, %v", status, removed, err)
		}
	}
}

func ExampleTaint() {
	cluster := fakecluster.New()
	cluster.Taint("a", ours, other)
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	location, err := url.Parse(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	taint := apiserver.Taint{Account: apiserver.Account{Server: location}, Node: "a", Key: "meshcni.io/not-ready"}
	fmt.Println(taint.Remove(context.Background()))
	fmt.Println(taint.Remove(context.Background()))
	// Output:
	// true <nil>
	// false <nil>
}
