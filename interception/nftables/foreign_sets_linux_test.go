// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// TestForeignSets has rules of other programs look destinations up in sets that can change. What
// such a rule does to the members' packets is known where it looks once, and all else was decoded.
func TestForeignSets(t *testing.T) {
	t.Parallel()
	const sets = "set v4 { type ipv4_addr; }; set v6 { type ipv6_addr; }; set ports { type inet_service; }; " +
		"set prefixes { type ipv4_addr; flags interval; }; set brief { type ipv4_addr; timeout 1h; }; " +
		"set both { type ipv4_addr . inet_service; }; map m { type ipv4_addr : verdict; }; "
	for rule, want := range map[string]string{
		"meta l4proto tcp skuid 0 ip daddr @v4 counter snat ip to 192.0.2.1": "v4 tcp uid 0: v4, snat to 192.0.2.1",
		"tcp dport 80 ip6 daddr @v6 accept":                                  "v6 tcp dport 80: v6, accept",
		"ip daddr @v4 tcp dport 80 accept":                                   "v4 tcp dport 80: v4, accept",
		"ip daddr @prefixes accept":                                          "v4: prefixes, accept",
		"ip daddr != @v4 accept":                                             "v4: , <nil>",
		"ip saddr @v4 accept":                                                "v4: , <nil>",
		"ip daddr @v4 ip daddr @prefixes accept":                             "v4: , <nil>",
		"ip daddr & 255.255.255.0 @v4 accept":                                "v4: , <nil>",
		"ip daddr @brief accept":                                             "v4: , <nil>",
		"ip daddr . tcp dport @both accept":                                  "v4 tcp: , <nil>",
		"ip daddr vmap @m":                                                   "v4: , <nil>",
		"tcp dport @ports accept":                                            "tcp: , <nil>",
		"ip daddr @v4 limit rate 1/second accept":                            "v4: , <nil>",
		"tcp dport 80 ip daddr @v4 counter":                                  "v4 tcp dport 80: , <nil>",
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			ns := newPod(t)
			ns.load(t, "table inet other { "+sets+"chain c { type nat hook postrouting priority 100; "+rule+"; }; }")
			chains := ns.observeAll(t, "mesh-test").Foreign
			if len(chains) != 1 || len(chains[0].Rules) != 1 {
				t.Fatalf("observed %+v, want one rule", chains)
			}
			r := chains[0].Rules[0]
			opaque, is := r.Action.(interception.Opaque)
			if got := fmt.Sprintf("%s: %s, %v", r.Match, opaque.To, opaque.Then); !is || got != want || opaque.Text == "" {
				t.Errorf("got %s (%v), want %s", got, r.Action, want)
			}
		})
	}
}
