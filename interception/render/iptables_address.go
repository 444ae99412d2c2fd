// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// addressText is an address as inet_ntop(3) prints it, and with it iptables-save: the last 32 bits of ::/96 like an IPv4 address, unless
// the first 16 of them are 0.
func addressText(addr netip.Addr) string {
	bytes := addr.As16()
	if addr.Is6() && [12]byte(bytes[:12]) == [12]byte{} && (bytes[12] != 0 || bytes[13] != 0) {
		return "::" + netip.AddrFrom4([4]byte(bytes[12:])).String()
	}
	return addr.String()
}

// prefixTexts are prefixes with their addresses as [addressText].
func prefixTexts(prefixes []netip.Prefix) []string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = fmt.Sprintf("%s/%d", addressText(p.Addr()), p.Bits())
	}
	return texts
}

// natAddress is an address, with its port when there is one.
func natAddress(addr netip.Addr, port interception.Port) string {
	text := addressText(addr)
	switch {
	case port == 0:
		return text
	case addr.Is6():
		return fmt.Sprintf("[%s]:%d", text, port)
	default:
		return fmt.Sprintf("%s:%d", text, port)
	}
}
