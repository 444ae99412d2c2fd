// SPDX-License-Identifier: Apache-2.0

package conflist_test

import (
	"testing"

	"github.com/meshcni/meshcni/conflist"
)

// BenchmarkInsert inserts an entry into Calico's list, as the daemon does once per node.
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

// BenchmarkInsertAgain finds nothing to do, as the daemon does at most events.
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
