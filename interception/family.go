// SPDX-License-Identifier: Apache-2.0

package interception

import "net/netip"

// Family is an IP version. The zero value stands for both.
type Family uint8

// The families. Their values are the IP version numbers.
const (
	BothFamilies Family = 0
	IPv4         Family = 4
	IPv6         Family = 6
)

// String returns "v4", "v6" or "v4+v6".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "v4"
	case IPv6:
		return "v6"
	case BothFamilies:
	}
	return "v4+v6"
}

// Covers reports whether f includes addr's family: IPv6 for IPv4-mapped ones, as in the kernel.
func (f Family) Covers(addr netip.Addr) bool {
	return f == BothFamilies || f == FamilyOf(addr)
}

// FamilyOf returns addr's family: IPv6 if IPv4-mapped, [BothFamilies] for the zero address.
func FamilyOf(addr netip.Addr) Family {
	switch {
	case addr.Is4():
		return IPv4
	case addr.Is6():
		return IPv6
	default:
		return BothFamilies
	}
}
