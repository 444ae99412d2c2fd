// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

// A request in the documentation: curl's options, in the order in which they are used there, and
// the answer in the lines after it.
var documented = regexp.MustCompile("(?m)^\\$ curl -s --unix-socket /var/run/istio-cni/agent\\.sock '?(\\S+?)'?(?: -d '(.*)')?\n((?:[^`$].*\n)*)```$")

// TestDocumentedRequests sends what docs/agent-socket.md shows, and must get what it shows.
func TestDocumentedRequests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "agent-socket.md"))
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{pod: interception.Pod{
		Namespace: "shop", Name: "web-0", UID: "7f0b",
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		Containers: []interception.Container{{
			Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, RunAsUser: new(int64(1337)), RunAsGroup: new(int64(1337)),
		}},
	}}
	dir := runDir(t)
	serve(t, dir, d.server())
	requests := documented.FindAllStringSubmatch(string(text), -1)
	if shown := strings.Count(string(text), "\n$ "); len(requests) != shown {
		t.Fatalf("%d of %d requests are understood", len(requests), shown)
	}
	for _, r := range requests {
		method := "GET"
		if r[2] != "" {
			method = "POST" // as curl's -d means
		}
		_, answer := request(t, dir, method, r[1], r[2])
		if diff := cmp.Diff(r[3], answer); diff != "" {
			t.Errorf("%s %s\n%s", method, r[1], diff)
		}
	}
	if len(d.entries) != 2 || d.entries[0].Attributes["pod"] != "shop/web-0" {
		t.Errorf("got entries %+v", d.entries)
	}
	if len(d.results) != 2 || len(d.results[0].Stages) != 2 || !d.results[0].Captured {
		t.Errorf("got results %+v", d.results)
	}
}

// TestDocumentedReasons has the documentation name what the server can answer.
func TestDocumentedReasons(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "agent-socket.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join("internal", "protocol", "protocol.go"))
	if err != nil {
		t.Fatal(err)
	}
	reasons := regexp.MustCompile(`Reason = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(reasons) == 0 {
		t.Fatal("no reason is found")
	}
	for _, reason := range reasons {
		if !strings.Contains(string(text), "| `"+reason[1]+"` |") {
			t.Errorf("no line about %s", reason[1])
		}
	}
}
