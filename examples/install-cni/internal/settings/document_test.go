// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/settings.md and what the chart has of the table of settings")

// TestFresh generates the documents again, and compares.
func TestFresh(t *testing.T) {
	t.Parallel()
	head, err := os.ReadFile("testdata/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		"../../../../docs/settings.md": manual(string(head)),
		chart + "/values.schema.json":  chartSchema(t),
		chart + "/settings.yaml":       chartTable(),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(file), text); diff != "" {
			t.Errorf("%s is stale (-file +now): run go test ./examples/install-cni/internal/settings -update, and read the difference:\n%s", path, diff)
		}
	}
}
