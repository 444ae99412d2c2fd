// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"strings"
	"testing"
)

// FuzzPrefixSet parses any list, and parses the set's own text back to the same set.
func FuzzPrefixSet(f *testing.F) {
	for _, seed := range []string{"", "*", "10.0.0.0/8, 2001:db8::/32", "10.0.0.0/9,10.128.0.0/9", "::ffff:1.2.3.4/120", "1.2.3.4"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		set, err := ParsePrefixSet(list)
		if err != nil {
			return
		}
		again, err := ParsePrefixSet(set.String())
		if err != nil || !again.Equal(set) {
			t.Fatalf("%q reads as %q, which reads as %q, %v", list, set, again, err)
		}
	})
}

// FuzzPortSet parses any list. What it prints without ranges it parses to the same set.
func FuzzPortSet(f *testing.F) {
	for _, seed := range []string{"", "*", "80, 443", "0,65535", "80,", "+1", "1-2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		set, err := ParsePortSet(list)
		if err != nil || strings.Contains(set.String(), "-") {
			return
		}
		again, err := ParsePortSet(set.String())
		if err != nil || !again.Equal(set) {
			t.Fatalf("%q reads as %q, which reads as %q, %v", list, set, again, err)
		}
	})
}
