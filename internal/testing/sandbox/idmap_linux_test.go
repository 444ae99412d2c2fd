// SPDX-License-Identifier: Apache-2.0

package sandbox

import "testing"

func TestSubordinateRange(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text   string
		first, count uint64
	}{
		{"empty", "", 0, 0},
		{"by name", "root:1:2\nada:100000:65536\n", 100000, 65536},
		{"by id", "1000:200000:65536", 200000, 65536},
		{"somebody else's", "adam:100000:65536\n10000:1:2\n", 0, 0},
		{"the largest", "ada:5:10\nada:100:1000\nada:7:20\n", 100, 1000},
		{"not of the form", "\nada\nada:1\nada:x:65536\nada:1:x\nada:1:2:3\nada:-1:5\n# ada:1:2\n", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			first, count := subordinateRange(test.text, []string{"1000", "ada"})
			if first != test.first || count != test.count {
				t.Errorf("got %d ids from %d, want %d from %d", count, first, test.count, test.first)
			}
		})
	}
}
