// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// HardwareAddr is an Ethernet address. The zero value stands for no address.
type HardwareAddr [6]byte

// String returns the address as ip(8) writes it, such as "02:00:00:00:00:01".
func (a HardwareAddr) String() string {
	parts := make([]string, len(a))
	for i := range a {
		parts[i] = hex.EncodeToString(a[i : i+1])
	}
	return strings.Join(parts, ":")
}

// MarshalText returns the address as String does.
func (a HardwareAddr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses the output of String. After an error a is unchanged.
func (a *HardwareAddr) UnmarshalText(text []byte) error {
	var parsed HardwareAddr
	parts := strings.Split(string(text), ":")
	if len(parts) != len(parsed) {
		return hardwareAddrError(text)
	}
	for i, part := range parts {
		if len(part) != 2 {
			return hardwareAddrError(text)
		}
		if _, err := hex.Decode(parsed[i:i+1], []byte(part)); err != nil {
			return hardwareAddrError(text)
		}
	}
	*a = parsed
	return nil
}

func hardwareAddrError(text []byte) error {
	return fmt.Errorf("%q is no Ethernet address such as 02:00:00:00:00:01", text)
}
