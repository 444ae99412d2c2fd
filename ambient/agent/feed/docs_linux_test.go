// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "ambient-feed.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocumentedConversations has what docs/ambient-feed.md shows with a server.
func TestDocumentedConversations(t *testing.T) {
	t.Parallel()
	conversations := regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(page(t), -1)
	if len(conversations) != 2 {
		t.Fatalf("%d conversations are found", len(conversations))
	}
	for _, conversation := range conversations {
		path, c := socketPath(t), newCluster()
		web := ambient.Pod{
			Pod: interception.Pod{
				Namespace: "shop", Name: "web-0", UID: "7f0b", Labels: map[string]string{"app": "web"}, ServiceAccount: "web",
			},
			Phase: "Running", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")},
		}
		c.annotate = func(_ context.Context, _ interception.Pod, status ambient.Status) error {
			if status == ambient.NoStatus {
				return ErrPodGone
			}
			return nil
		}
		c.serve(t, path, ServerOptions{})
		shop := ambient.Namespace{Name: "shop", Labels: map[string]string{"istio.io/dataplane-mode": "ambient"}}
		c.changes <- ambient.Change{Pods: []ambient.Pod{web}, Namespaces: []ambient.Namespace{shop}, Complete: true}
		r := dial(t, path)
		for line := range strings.Lines(conversation[1]) {
			speaker, message, _ := strings.Cut(strings.TrimSpace(line), ":")
			message = strings.TrimSpace(message)
			if speaker == "agent" {
				r.send(message)
				continue
			}
			r.expect(message)
			switch {
			case strings.Contains(message, `"done"`): // the pod comes back with the annotation, and goes
				annotated := web
				annotated.Annotations = map[string]string{ambient.Istio().Status: string(ambient.StatusEnabled)}
				c.changes <- ambient.Change{Pods: []ambient.Pod{annotated}}
			case strings.Contains(message, `"annotations"`):
				c.changes <- ambient.Change{Gone: []string{web.UID}}
			}
		}
	}
}

// TestDocumentedNames has the page name all kinds, results, reasons and bounds.
func TestDocumentedNames(t *testing.T) {
	t.Parallel()
	text := page(t)
	agent, source, _ := strings.Cut(text, "The source sends:")
	for _, side := range []struct {
		known kinds
		page  string
	}{{fromAgent(), agent}, {fromSource(), source}} {
		for kind := range side.known {
			if !strings.Contains(side.page, "| `"+kind+"` |") {
				t.Errorf("no line about %s", kind)
			}
		}
	}
	code, err := os.ReadFile("message.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?:reason|result) = "(\w+)"`).FindAllStringSubmatch(string(code), -1)
	if len(names) != 6 {
		t.Errorf("%d names are found", len(names))
	}
	for _, name := range names {
		if !strings.Contains(text, "| `"+name[1]+"` |") {
			t.Errorf("no line about %s", name[1])
		}
	}
	for _, bound := range []string{
		fmt.Sprintf("| a message of the source | %d MiB;", maxFromSource>>20),
		fmt.Sprintf("| a message of the agent | %d KiB |", maxFromAgent>>10),
		fmt.Sprintf("and to take a message | %v s;", defaultPatience.Seconds()),
		fmt.Sprintf("| connections at once | %d;", maxConnections),
		fmt.Sprintf("| requests at once for each agent | %d;", maxAnnotations),
		fmt.Sprintf("| the source's time for a request | %v s |", annotateWithin.Seconds()),
		fmt.Sprintf("connects again | from %v, doubling up to %v s |", strings.Replace(firstPause.String(), "ms", " ms", 1), longestPause.Seconds()),
		fmt.Sprintf("asks again | from %v s, doubling up to %v min |", firstAnnotation.Seconds(), longestAnnotation.Minutes()),
	} {
		if !strings.Contains(text, bound) {
			t.Errorf("the page does not say: %s", bound)
		}
	}
	one := full()
	for _, of := range []any{&one, &annotation{Status: "x"}, &answer{Error: "x"}, &refusal{Versions: []int{1}}, &gone{}, label("a", "b")} {
		encoded, err := json.Marshal(of)
		var fields map[string]any
		if err := errors.Join(err, json.Unmarshal(encoded, &fields)); err != nil || len(fields) == 0 {
			t.Fatalf("%s: %v", encoded, err)
		}
		for field := range fields {
			if !strings.Contains(text, "`"+field+"`") && !strings.Contains(text, `"`+field+`"`) {
				t.Errorf("nothing about field %s of %T", field, of)
			}
		}
	}
}
