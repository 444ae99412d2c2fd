// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

func (n *node) other(mode reconciler.Mode) *node {
	second := *n
	second.mode, second.claim = mode, n.claim+".other"
	second.options.Want.Mode = mode
	second.options.Want.Plugin = conflist.Plugin{Type: "other-cni", Body: []byte(`{"type": "other-cni", "level": 2}`)}
	second.options.Claims = reconciler.ClaimFile{Path: second.claim, Calls: unsynced{}}
	return &second
}

// mostTurns is how often each of two installers may look until neither has anything to do.
const mostTurns = 6

func settle(t *testing.T, both ...*node) {
	t.Helper()
	for range mostTurns {
		idle := true
		for _, n := range both {
			plan, err := n.reconciler().Ensure(n.context)
			if err != nil && !errors.Is(err, reconciler.ErrWaiting) {
				t.Fatalf("%s: %v\n%v", n.options.Want.Plugin.Type, err, plan)
			}
			idle = idle && plan.Steps() == 0 && err == nil
		}
		if idle {
			return
		}
	}
	t.Errorf("two installers are not done after %d turns: %v", mostTurns, dump(t, both[0].directory))
}

// calls counts how often a runtime calls a plugin, or a meta plugin can.
func (n *node) calls(typ string, mode reconciler.Mode) int {
	n.t.Helper()
	if mode == reconciler.Standalone {
		if _, err := os.Stat(filepath.Join(n.directory, "YYY-"+typ+".conf")); err == nil {
			return 1
		}
		return 0
	}
	loaded, count := n.loaded(), 0
	if loaded == nil {
		return 0
	}
	for _, one := range chain(loaded) {
		if one == typ {
			count++
		}
	}
	return count
}

func orUnset(mode reconciler.Mode) string { return cmp.Or(string(mode), "unset") }

// TestTwoInstallers runs installers of two plugins in every pair of modes, started in either order.
// Both reach a point at which neither has anything to do, also after the network has changed, and
// each plugin is called once. After one is removed, the directory is as the other wants it; after
// both, it is as it was before.
func TestTwoInstallers(t *testing.T) {
	t.Parallel()
	all := append(modes(), reconciler.Auto, "")
	for _, mode := range all {
		for _, with := range all {
			for _, later := range []bool{false, true} {
				t.Run(orUnset(mode)+" and "+orUnset(with)+map[bool]string{true: ", one after the other"}[later], func(t *testing.T) {
					t.Parallel()
					first := newNode(t, mode)
					first.write("10-calico.conflist", calicoList, 0o640)
					before := dump(t, first.directory)
					second := first.other(with)
					if later {
						settle(t, first)
					}
					check := func(when string) {
						t.Helper()
						settle(t, first, second)
						for _, n := range []*node{first, second} {
							if typ := n.options.Want.Plugin.Type; n.calls(typ, n.mode) != 1 {
								t.Errorf("%s: %s is called %d times: %v", when, typ, n.calls(typ, n.mode), dump(t, n.directory))
							}
						}
					}
					check("at first")
					first.write("10-calico.conflist", strings.Replace(calicoList, "\n  ]", ",\n    {\"type\": \"tuning\"}\n  ]", 1), 0o640)
					check("with another network")
					first.write("10-calico.conflist", calicoList, 0o640)
					check("with the network of before")
					first.remove()
					if second.calls("other-cni", with) != 1 || slices.Contains(chain(first.loaded()), "mesh-cni") {
						t.Errorf("after one was uninstalled: %v", dump(t, first.directory))
					}
					settle(t, second)
					second.remove()
					if mode == reconciler.DropIn && with == mode { // the one that created it went while the other's file was in it
						if err := os.Remove(filepath.Join(first.directory, "k8s-pod-network")); err != nil {
							t.Error(err)
						}
					}
					first.want("after both were uninstalled", before)
				})
			}
		}
	}
}
