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
		{"8000-8999, 80", "80,8000-8999"},
		{"80-80", "80"},
		{"0-65535", "*"},
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
		{"65536", `"65536" is neither a port`},
		{"-1", `"-1" is neither a port`},
		{"+1", `"+1" is neither a port`},
		{"90-80", `"90-80" is neither a port`},
		{"80-", `"80-" is neither a port`},
		{"80-90-100", `"80-90-100" is neither a port`},
		{"http", `"http" is neither a port`},
		{"80 443", `"80 443" is neither a port`},
		{"80;reboot", `"80;reboot" is neither a port`},
		{"0x50", `"0x50" is neither a port`},
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

// Parsing the text of a set, of ids too, returns an equal set.
func TestSetsAreReadAsTheyPrint(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "*", "0", "7,1000-2000,65535", "0-65534"} {
		ports, err := ParsePortSet(text)
		if err != nil || ports.String() != text {
			t.Errorf("%q: %q, %v", text, ports, err)
		}
		users, err := ParseUIDSet(text)
		if err != nil || users.String() != text {
			t.Errorf("%q: %q, %v", text, users, err)
		}
		groups, err := ParseGIDSet(text)
		if err != nil || groups.String() != text {
			t.Errorf("%q: %q, %v", text, groups, err)
		}
	}
	for _, text := range []string{"root", "4294967296", "2000-1000", "1,"} {
		users, err := ParseUIDSet(text)
		if err == nil || !users.IsEmpty() {
			t.Errorf("%q: %q, %v", text, users, err)
		}
	}
}
