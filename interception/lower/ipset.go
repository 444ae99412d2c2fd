// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// maxIPSet is the length of an ipset's name (IPSET_MAXNAMELEN, less the terminating zero).
const maxIPSet = 31

// IPSet returns the name of a live set among ipsets: owner, name, and what its members are, such as
// istio-ambient_probes-v4_4a. No other owner's names begin with istio-ambient_. The error wraps
// [interception.ErrUnsupported] if the name is longer than the kernel's names can be.
func IPSet(owner interception.Owner, set interception.Set) (string, error) {
	family := map[interception.Family]string{interception.IPv4: "4", interception.IPv6: "6"}[set.Family]
	kind := map[bool]string{true: "a", false: "p"}[set.Addresses] // addresses or prefixes
	name := IPSetPrefix(owner) + string(set.Name) + "_" + family + kind
	if len(name) > maxIPSet {
		return "", fmt.Errorf("live set %s (%s): %w by iptables: owner and name have %d bytes, and ipsets' names have room for %d",
			set.Name, set.Why, interception.ErrUnsupported, len(owner)+len(set.Name), maxIPSet-len("__4a"))
	}
	return name, nil
}

// IPSetPrefix begins the names of an owner's ipsets.
func IPSetPrefix(owner interception.Owner) string { return string(owner) + "_" }

// ParseIPSet returns the live set of the owner that has a name from [IPSet]. ok is false for any
// other name.
func ParseIPSet(owner interception.Owner, kernel string) (set interception.Set, ok bool) {
	text, own := strings.CutPrefix(kernel, IPSetPrefix(owner))
	name, _, _ := strings.Cut(text, "_")
	set = interception.Set{Name: interception.SetName(name), Live: true}
	if !own || set.Name.Validate() != nil {
		return interception.Set{}, false
	}
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		for _, addresses := range []bool{true, false} {
			set.Family, set.Addresses = family, addresses
			if same, err := IPSet(owner, set); err == nil && same == kernel {
				return set, true
			}
		}
	}
	return interception.Set{}, false
}
