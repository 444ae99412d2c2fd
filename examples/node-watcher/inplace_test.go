// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// TestPreferring has each dataplane once, that of the setting first.
func TestPreferring(t *testing.T) {
	t.Parallel()
	all := []choice.Candidate{{Name: choice.NFTables}, {Name: choice.IPTables}}
	for setting, want := range map[string][]string{
		"": {"nftables", "iptables"}, pluginconf.Auto: {"nftables", "iptables"}, pluginconf.NFTables: {"nftables", "iptables"},
		pluginconf.IPTables: {"iptables", "nftables"},
	} {
		var got []string
		for _, c := range preferring(setting, all) {
			got = append(got, c.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", setting, got, want)
		}
	}
}
