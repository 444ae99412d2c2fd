// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"
)

// Documents after many empty lines take no memory for the lines before them.
func TestDocumentsTakeNoMoreThanTheirText(t *testing.T) {
	t.Parallel()
	const newlines, documents = 10_000, 400
	text := strings.Repeat("\n", newlines) + strings.Repeat("---\nkind: Service\n", documents)
	all, err := split([]byte(text))
	if err != nil || len(all) != documents {
		t.Fatalf("%d documents, %v", len(all), err)
	}
	total := 0
	for _, d := range all {
		total += cap(d.text)
	}
	if total > 2*len(text) {
		t.Errorf("they take %d bytes of a text of %d", total, len(text))
	}
	if _, err := Read([]byte(text + "---\n- a\n- b: c: d\n")); err == nil || !strings.Contains(err.Error(), "line 10803:") {
		t.Errorf("another line is named: %v", err)
	}
}
