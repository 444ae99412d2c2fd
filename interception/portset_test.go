// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"strings"
	"testing"
)

func TestParsePortSet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ list, want string }{
		{"", ""},
		{"  ", ""},
		{"*", "*"},
		{" * ", "*"},
		{"80", "80"},
		{" 80 , 443 ", "80,443"},
		{"\t80,\n443", "80,443"},
		{"0,65535", "0,65535"},
		{"80,80", "80"},
		{"007", "7"},
	} {
		got, err := ParsePortSet(tc.list)
		if err != nil || got.String() != tc.want {
			t.Errorf("ParsePortSet(%q) = %q, %v; want %q", tc.list, got, err, tc.want)
		}
	}
}

func TestParsePortSetRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ list, reason string }{
		{"80,", "empty"},
		{",80", "empty"},
		{"80,,443", "empty"},
		{"80,*", "must be alone"},
		{"65536", `"65536" is not a port`},
		{"-1", `"-1" is not a port`},
		{"+1", `"+1" is not a port`},
		{"80-90", `"80-90" is not a port`},
		{"http", `"http" is not a port`},
		{"80 443", `"80 443" is not a port`},
		{"80;reboot", `"80;reboot" is not a port`},
		{"0x50", `"0x50" is not a port`},
	} {
		got, err := ParsePortSet(tc.list)
		if err == nil || !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("ParsePortSet(%q) = %q, %v; want an error with %q", tc.list, got, err, tc.reason)
		}
		if !got.IsEmpty() {
			t.Errorf("ParsePortSet(%q) gives %q beside its error", tc.list, got)
		}
	}
}
