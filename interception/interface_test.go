// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"testing"
)

func TestParseInterfaceSet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ list, want string }{
		{"", ""},
		{"eth0", "eth0"},
		{" eth1 , eth0,eth1", "eth0,eth1"},
		{"br-lan.10,net_1", "br-lan.10,net_1"},
		{"abcdefghijklmno", "abcdefghijklmno"},
	} {
		got, err := ParseInterfaceSet(tc.list)
		if err != nil || got.String() != tc.want {
			t.Errorf("ParseInterfaceSet(%q) = %q, %v; want %q", tc.list, got, err, tc.want)
		}
	}
	for _, list := range []string{"eth0,", "eth+", "0eth", "abcdefghijklmnop", "eth 0", "eth0;reboot", "eth0,,eth1", "*", "é"} {
		got, err := ParseInterfaceSet(list)
		if err == nil || !errors.Is(err, ErrName) {
			t.Errorf("ParseInterfaceSet(%q) = %q, %v; want ErrName", list, got, err)
		}
	}
}
