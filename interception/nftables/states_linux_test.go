// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/internal/testing/goldencases"
)

// TestEquivalentBesideOthers has other programs' rules in the namespace: the kernel treats the
// packet that the proof shows as the proof predicts.
func TestEquivalentBesideOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"nobody":                    {"", "yes"},
		"somebody who only accepts": {"table inet theirs { chain c { type filter hook output priority -300; counter; tcp dport 23 accept; }; }", "yes"},
		"a redirect ahead": {
			"table ip theirs { chain c { type nat hook output priority -110; tcp dport 443 redirect to :8080; }; }", "no: tcp",
		},
		"a redirect after": {
			"table ip theirs { chain c { type nat hook output priority -90; tcp dport 443 redirect to :8080; }; }", "no: tcp",
		},
		"a redirect at the same time": {
			"table ip theirs { chain c { type nat hook output priority -100; tcp dport 443 redirect to :8080; }; }", "unknown: ",
		},
		"a drop after a jump": {
			"table inet theirs { chain d { tcp dport 9000 drop; }; chain c { type filter hook input priority 0; tcp dport 9000 jump d; }; }", "no: tcp",
		},
		"a drop of connections": {"table ip theirs { chain c { type filter hook output priority 10; policy drop; meta l4proto udp accept; }; }", "no: tcp"},
		"a rule that is not decoded": {
			"table inet theirs { chain c { type filter hook output priority 0; tcp dport 9000 limit rate 1/second drop; }; }", "inet theirs/c[0]",
		},
		"a policy of our own": {"add chain inet mesh-test hook.nat.output { policy drop; }", "policy drop"},
		"our table dormant":   {"add table inet mesh-test { flags dormant; }", "no: tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := onePort(t, "mesh-test", 15001)
			dp, err := nftables.New(nftables.Options{Foreign: true})
			if err != nil {
				t.Fatal(err)
			}
			pod := besideOthers(t, dp, plan, c.script)
			state, err := goldencases.Observe(t.Context(), dp, pod, plan.Owner)
			if err != nil {
				t.Fatal(err)
			}
			bare, err := pod.World(nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := proof.Equivalent(plan, state, proof.Options{World: bare})
			if err != nil || !strings.Contains(got.String(), c.want) {
				t.Fatalf("%v, %v, want %q", got, err, c.want)
			}
			if got.Answer == proof.No {
				if sent, err := pod.Compare(t.Context(), got.Worlds[1], got.Packet); err != nil || sent.Disagreement != "" {
					t.Errorf("%v, %s", err, sent.Report())
				}
			}
		})
	}
}

// besideOthers returns a pod with the plan, and with the objects of an nft script.
func besideOthers(t *testing.T, dp interception.Dataplane, plan *interception.Plan, script string) *dataplanetest.Pod {
	t.Helper()
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")}, Ports: []uint16{8080},
	})
	if err := pod.Apply(t.Context(), dp, plan); err != nil {
		t.Fatal(err)
	}
	if err := pod.Do(func() error {
		cmd := exec.CommandContext(t.Context(), "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return pod
}
