// SPDX-License-Identifier: Apache-2.0

package meshcni_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// complaintsPage lists what users of ambient mode complain of, with our tests.
const complaintsPage = "docs/ambient-complaints.md"

// TestComplaints looks for each test that the page names, for each complaint's line, and for each
// quirk's of Istio's node form.
func TestComplaints(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(complaintsPage)
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]testTexts{}
	for letter, table := range map[string]struct{ lines, cells int }{"E": {32, 5}, "Q": {19, 4}} {
		lines := 0
		for line := range strings.Lines(string(page)) {
			if !strings.HasPrefix(line, "| "+letter) {
				continue
			}
			lines++
			cells := strings.Split(strings.Trim(line, "|\n"), "|")
			if number := strings.TrimSpace(cells[0]); len(cells) != table.cells || number != fmt.Sprint(letter, lines) {
				t.Errorf("%s: want line %s%d with %d cells: %s", complaintsPage, letter, lines, table.cells, line)
				continue
			}
			if wrong := judgeCounterpart(t, packages, strings.TrimSpace(cells[len(cells)-1])); wrong != "" {
				t.Errorf("%s: %s%d: %s", complaintsPage, letter, lines, wrong)
			}
		}
		if lines != table.lines {
			t.Errorf("%s has %d lines of %s, want %d", complaintsPage, lines, letter, table.lines)
		}
	}
}
