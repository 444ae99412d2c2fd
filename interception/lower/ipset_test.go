// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func TestIPSet(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, owner := range []interception.Owner{"mesh-a", "mesh-a-b"} {
		for _, name := range []interception.SetName{"b", "b-4a"} {
			for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
				for _, addresses := range []bool{true, false} {
					want := interception.Set{Name: name, Family: family, Live: true, Addresses: addresses}
					kernel, err := IPSet(owner, want)
					if err != nil || seen[kernel] {
						t.Errorf("%v: %q, %v", want, kernel, err)
					}
					seen[kernel] = true
					if got, ok := ParseIPSet(owner, kernel); !ok || got.Name != name || got.Family != family || got.Addresses != addresses || !got.Live {
						t.Errorf("%s is parsed as %v, %t", kernel, got, ok)
					}
					if _, ok := ParseIPSet("mesh-other", kernel); ok {
						t.Errorf("%s is also another owner's", kernel)
					}
				}
			}
		}
	}
	for _, name := range []string{"", "mesh-a", "mesh-a_", "mesh-a_b", "mesh-a_b_", "mesh-a_b_4", "mesh-a_b_4t", "mesh-a_B_4a", "mesh-a_b_4a_4a", "b_4a"} {
		if set, ok := ParseIPSet("mesh-a", name); ok {
			t.Errorf("%q is parsed as %v", name, set)
		}
	}
	longest := interception.Set{Name: interception.SetName(strings.Repeat("x", 31-len("mesh-a__4a"))), Family: interception.IPv4, Why: "pods"}
	if name, err := IPSet("mesh-a", longest); err != nil || len(name) != 31 {
		t.Errorf("the longest name: %q, %v", name, err)
	}
	longest.Name += "x"
	if name, err := IPSet("mesh-a", longest); !errors.Is(err, interception.ErrUnsupported) || !strings.Contains(err.Error(), "(pods)") {
		t.Errorf("a name too long: %q, %v, want ErrUnsupported", name, err)
	}
}
