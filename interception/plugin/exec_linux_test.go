// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"testing"
)

// TestADDExecutesNothing has the kernel tell of every process and program.
func TestADDExecutesNothing(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]string{"REDIRECT": nil, "TPROXY": {`"REDIRECT"`, `"TPROXY"`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t, edits...))
			for _, run := range []string{"first", "repeated"} {
				l := n.trace(n.add(`{"dataplane": "nftables"}`), 0)
				l.mustSucceed(t)
				if l.starts > 0 || l.programs != nil {
					t.Errorf("%s: ADD started %d processes, and executed %q", run, l.starts, l.programs)
				}
				if l.stops < 100 {
					t.Errorf("%s: the kernel told of %d stops only", run, l.stops)
				}
			}
			if tables := n.tables(); len(tables) != 1 {
				t.Errorf("got tables %v", tables)
			}
		})
	}
}

// TestTraceTellsOfPrograms has a program that starts the plugin.
func TestTraceTellsOfPrograms(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	args := n.add()
	l := n.traceProgram(mustBuild(t, "testdata/launcher"), append(environment("ADD", args), "PROGRAM="+plugin(t)), args.StdinData, 0)
	if l.code != 0 || l.starts != 1 || !slices.Equal(l.programs, []string{plugin(t)}) {
		t.Errorf("got %+v", l)
	}
}
