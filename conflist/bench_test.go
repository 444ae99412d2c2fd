// SPDX-License-Identifier: Apache-2.0

package conflist_test

import (
	"testing"

	"github.com/meshcni/meshcni/conflist"
)

// BenchmarkInsert puts an entry into Calico's list, as the daemon does once a node.
func BenchmarkInsert(b *testing.B) {
	doc := readFile(b, "testdata/before/calico.conflist")
	p := mesh()
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if _, err := conflist.Insert(doc, p); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInsertAgain finds that nothing is to be done, as the daemon does at every event.
func BenchmarkInsertAgain(b *testing.B) {
	p := mesh()
	edit, err := conflist.Insert(readFile(b, "testdata/before/calico.conflist"), p)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(edit.Out)))
	for b.Loop() {
		if _, err := conflist.Insert(edit.Out, p); err != nil {
			b.Fatal(err)
		}
	}
}
