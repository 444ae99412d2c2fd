// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && slices.Contains([]string{victimArgument, editorArgument, hostArgument}, os.Args[1]) {
		if err := beVictim(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(sandbox.RunTests(m))
}

// pod is a fresh network namespace, as the dataplane and as programs see it.
type pod struct{ *sandboxtest.Pod }

func newPod(t testing.TB) *pod {
	t.Helper()
	return &pod{sandboxtest.NewPod(t)}
}

func (p *pod) apply(t testing.TB, plan *interception.Plan) {
	t.Helper()
	if err := dataplane(t).Apply(t.Context(), p.Netns, plan); err != nil {
		t.Fatal(err)
	}
}

func (p *pod) nft(t testing.TB, script string, args ...string) string {
	t.Helper()
	return p.Run(t, script, append([]string{"nft"}, args...)...)
}

func (p *pod) load(t testing.TB, script string) {
	t.Helper()
	p.nft(t, script, "-f", "-")
}

func (p *pod) ruleset(t testing.TB) string {
	t.Helper()
	return p.nft(t, "", "-n", "list", "ruleset")
}

func dataplane(t testing.TB) *nftables.Dataplane {
	t.Helper()
	d, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func build(t testing.TB, owner interception.Owner, fill func(*interception.Builder)) *interception.Plan {
	t.Helper()
	plan, err := interception.Build(owner, fill)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func prefixes(list ...string) interception.PrefixSet {
	var parsed []netip.Prefix
	for _, prefix := range list {
		parsed = append(parsed, netip.MustParsePrefix(prefix))
	}
	return interception.Prefixes(parsed...)
}
