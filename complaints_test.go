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

// TestComplaints looks for each test that the page names, and for each complaint's line.
func TestComplaints(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(complaintsPage)
	if err != nil {
		t.Fatal(err)
	}
	packages, lines := map[string]testTexts{}, 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| E") {
			continue
		}
		lines++
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if number := strings.TrimSpace(cells[0]); len(cells) != 5 || number != fmt.Sprintf("E%d", lines) {
			t.Errorf("%s: want line E%d with five cells: %s", complaintsPage, lines, line)
			continue
		}
		cell := strings.TrimSpace(cells[4])
		if cell == "without a test of its own" {
			continue
		}
		if wrong := judgeCounterpart(t, packages, cell); wrong != "" {
			t.Errorf("%s: E%d: %s", complaintsPage, lines, wrong)
		}
	}
	if lines != 32 {
		t.Errorf("%s has %d complaints, want 32", complaintsPage, lines)
	}
}
