// SPDX-License-Identifier: Apache-2.0

package settings

import "testing"

func TestLoopback(t *testing.T) {
	t.Parallel()
	parser := loopback(func(s *Settings) *string { return &s.PprofAddress })
	for address, good := range map[string]bool{
		"127.0.0.1:0": true, "127.8.9.10:6060": true, "[::1]:6060": true, "[::ffff:127.0.0.1]:1": true, "": true,
		":6060": false, "0.0.0.0:6060": false, "[::]:6060": false, "10.0.0.1:6060": false, "localhost:6060": false, "127.0.0.1": false,
	} {
		var s Settings
		if err := parser.apply(&s, address); (err == nil) != good || (good && s.PprofAddress != address) {
			t.Errorf("%q: %q, %v", address, s.PprofAddress, err)
		}
	}
}
