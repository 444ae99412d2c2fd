// SPDX-License-Identifier: Apache-2.0

package conflist_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
)

var update = flag.Bool("update", false, "rewrite testdata/after")

func mesh() conflist.Plugin {
	return conflist.Plugin{
		Type: "istio-cni",
		Body: json.RawMessage(`{"name": "istio-cni", "type": "istio-cni", "plugin_log_level": "info", "ambient_enabled": false,
			"exclude_namespaces": ["kube-system", "istio-system"], "enablement_selectors": [], "ipam": {}}`),
	}
}

// TestCorpus sends every document of testdata/before through Insert and Remove, and compares the
// result of Insert with testdata/after.
func TestCorpus(t *testing.T) {
	t.Parallel()
	for _, file := range corpus(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			before := readFile(t, file)
			inserted, err := conflist.Insert(before, mesh())
			if err != nil {
				t.Fatal(err)
			}
			isSingle := strings.HasSuffix(file, ".conf")
			if !inserted.Changed || inserted.Lifted != isSingle {
				t.Errorf("Insert: Changed %v, Lifted %v; want true, %v", inserted.Changed, inserted.Lifted, isSingle)
			}
			golden(t, filepath.Join("testdata/after", filepath.Base(file)), inserted.Out)
			wantUnchanged(t, inserted.Out, mesh())
			if isSingle {
				wantWithin(t, inserted.Out, before)
				return
			}
			wantOnlyAddition(t, before, inserted.Out)
			wantRemoved(t, inserted.Out, before)
		})
	}
}

func corpus(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/before/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	return files
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(readFile(t, file)), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func readFile(t testing.TB, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func wantUnchanged(t *testing.T, doc []byte, p conflist.Plugin) {
	t.Helper()
	again, err := conflist.Insert(doc, p)
	if err != nil || again.Changed || again.Lifted || !bytes.Equal(again.Out, doc) {
		t.Errorf("Insert once more: Changed %v, Lifted %v, error %v, and made\n%s", again.Changed, again.Lifted, err, again.Out)
	}
}

func wantRemoved(t *testing.T, doc, want []byte) {
	t.Helper()
	removed, err := conflist.Remove(doc, "istio-cni")
	if err != nil {
		t.Fatal(err)
	}
	if !removed.Changed || removed.Lifted {
		t.Errorf("Remove: Changed %v, Lifted %v; want true, false", removed.Changed, removed.Lifted)
	}
	if diff := cmp.Diff(string(want), string(removed.Out)); diff != "" {
		t.Errorf("after Remove (-want +got):\n%s", diff)
	}
}

// wantOnlyAddition checks that after is before with one piece added.
func wantOnlyAddition(t *testing.T, before, after []byte) {
	t.Helper()
	prefix := 0
	for prefix < len(before) && before[prefix] == after[prefix] {
		prefix++
	}
	if !bytes.HasSuffix(after, before[prefix:]) {
		t.Errorf("bytes that are not ours have changed:\n%s", after)
	}
}

// wantWithin checks that the lifted list contains the single configuration byte for byte.
func wantWithin(t *testing.T, lifted, single []byte) {
	t.Helper()
	if !bytes.Contains(lifted, bytes.Trim(single, " \t\r\n")) {
		t.Errorf("the original object is not in the list, byte for byte:\n%s", lifted)
	}
}
