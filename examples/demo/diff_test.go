// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestDiff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, before, after, want string }{
		{"equal", "a\nb\n", "a\nb\n", ""},
		{"inserted", "a\nb\nc\n", "a\nb\nx\nc\n", "  b\n+ x\n  c\n"},
		{"changed", "a\nb\nc\n", "a\nx\ny\nc\n", "  a\n- b\n+ x\n+ y\n  c\n"},
		{"removed", "a\nb\nc\n", "a\nc\n", "  a\n- b\n  c\n"},
		{"first line", "a\nb\n", "x\nb\n", "- a\n+ x\n  b\n"},
		{"last line", "a\nb", "a\nx", "  a\n- b\n+ x\n"},
		{"repeated lines", "a\na\n", "a\na\na\n", "  a\n+ a\n"},
		{"from nothing", "", "a\n", "+ a\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := diff(test.before, test.after); got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
		})
	}
}
