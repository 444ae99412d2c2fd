// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"strings"
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

func TestParseInterfaceSetSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{"ëth0": "'ë' is not allowed at byte 0", "eth0,,": "remove the extra comma"} {
		if _, err := ParseInterfaceSet(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseInterfaceSet(%q) = %v, want %q", list, err, want)
		}
	}
}
