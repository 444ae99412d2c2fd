// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// minNetworks is from how many members on networks of one length are worth a mask in each rule.
const minNetworks = 64

// Networks are the members of a set as networks of one length, in ascending order, and that length in bits. nf_tables finds an address among
// them by a mask and one look into a hash table, and takes a quarter of the time to add them that it takes for [Intervals], which need two
// elements each in a tree.
//
// There are none for a live set, for fewer than 64 members, and where it would take more than two networks for a member, as lengths differ
// too much: then the set has intervals.
func Networks(s interception.Set) (networks []netip.Addr, bits int) {
	if s.Live || s.Members.Len() < minNetworks {
		return nil, 0
	}
	for prefix := range s.Members.All() {
		bits = max(bits, prefix.Bits())
	}
	count, most := 0, 2*s.Members.Len()
	for prefix := range s.Members.All() {
		if longer := bits - prefix.Bits(); longer < strconv.IntSize-2 {
			count += 1 << longer
		} else {
			count = most + 1
		}
		if count > most {
			return nil, 0
		}
	}
	networks = make([]netip.Addr, 0, count)
	for prefix := range s.Members.All() {
		network := prefix.Addr()
		for range 1<<(bits-prefix.Bits()) - 1 {
			networks = append(networks, network)
			network = lastAddress(netip.PrefixFrom(network, bits)).Next()
		}
		networks = append(networks, network)
	}
	return networks, bits
}

// SetName is the name in nf_tables of a plan's set: of networks with so many bits, or of intervals when that is 0.
func SetName(name interception.SetName, bits int) string {
	if bits == 0 {
		return setPrefix + string(name)
	}
	return setPrefix + string(name) + "/" + strconv.Itoa(bits)
}

const setPrefix = "set-"

// ParseSetName is what [SetName] makes the name of. ok is false for all other names.
func ParseSetName(kernel string) (name interception.SetName, bits int, ok bool) {
	text, ok := strings.CutPrefix(kernel, setPrefix)
	text, length, _ := strings.Cut(text, "/")
	name = interception.SetName(text)
	bits, _ = strconv.Atoi(length)
	return name, bits, ok && bits >= 0 && name.Validate() == nil && SetName(name, bits) == kernel
}
