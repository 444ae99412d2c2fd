// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// TestABadEntryKeepsTheOneBefore has Entry return an invalid entry without an error.
func TestABadEntryKeepsTheOneBefore(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"no JSON": `{"type": "linkmesh-cni"`, "no object": `[]`, "empty": ``, "another plugin's": `{"type": "other-cni"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTestNode(t)
			entry := `{"type": "linkmesh-cni", "level": "first"}`
			n.options.Entry = func(context.Context) (json.RawMessage, error) { return json.RawMessage(entry), nil }
			n.write("bin/"+testPlugin, "a program")
			config := n.installer().config()
			ensure := func(when, level string) {
				t.Helper()
				if _, err := config.Ensure(t.Context()); err != nil {
					t.Errorf("%s: %v", when, err)
				}
				if list := n.read("net.d/10-net.conflist"); !strings.Contains(list, `"`+level+`"`) {
					t.Errorf("%s: the list is %s", when, list)
				}
			}
			ensure("a good entry", "first")
			entry = bad
			for range 2 {
				n.write("net.d/10-net.conflist", testNetwork)
				ensure("another program took the entry away, and a bad one is offered", "first")
			}
			if times := n.saidTimes("a new entry of the plugin is refused"); times != 1 {
				t.Errorf("the refusal was told %d times: %q", times, n.said)
			}
			entry = `{"type": "linkmesh-cni", "level": "second"}`
			ensure("another good entry", "second")
		})
	}
}

// TestABadEntryAtFirst has no earlier entry to keep.
func TestABadEntryAtFirst(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	n.options.Entry = func(context.Context) (json.RawMessage, error) { return json.RawMessage(`[]`), nil }
	n.write("bin/"+testPlugin, "a program")
	if _, err := n.installer().config().Ensure(t.Context()); err == nil || n.read("net.d/10-net.conflist") != testNetwork {
		t.Errorf("error %v, list %s", err, n.read("net.d/10-net.conflist"))
	}
}
