// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// kernel is a dataplane on a kernel without some feature: it refuses the first rule that needs the
// feature, and otherwise calls the real dataplane.
type kernel struct {
	interception.Dataplane
	lacks string
}

// Apply implements [interception.Dataplane].
func (k kernel) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	for _, r := range p.Rules() {
		if strings.HasPrefix(r.Action.String(), k.lacks) {
			return fmt.Errorf("apply plan: %w", &interception.ApplyError{At: string(r.ID), Why: r.Why, Err: fmt.Errorf("module: %w", interception.ErrUnsupported)})
		}
	}
	return k.Dataplane.Apply(ctx, ns, p)
}

// sidecars returns plans of typical pods.
func sidecars(t testing.TB) map[string]*interception.Plan {
	t.Helper()
	plans := map[string]*interception.Plan{}
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		redirect, _, err := sidecar.Istio().Parse(interception.Pod{
			Namespace: "shop", Name: "cart-0", Containers: []interception.Container{{Name: "istio-proxy"}},
			Annotations: map[string]string{"sidecar.istio.io/interceptionMode": mode},
		})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := sidecar.Plan(redirect, interception.Facts{IPv6: true}, "mesh-test")
		if err != nil {
			t.Fatal(err)
		}
		plans[mode] = plan
	}
	return plans
}

// TestChooseOnThisKernel asks the real kernel: nftables works; without TPROXY in nftables, plans
// that need it use iptables; and vice versa.
func TestChooseOnThisKernel(t *testing.T) {
	t.Parallel()
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lacking := []choice.Candidate{{choice.NFTables, kernel{candidates[0].Dataplane, "tproxy"}}, candidates[1]}
	plans := sidecars(t)
	for _, test := range []struct {
		mode       string
		candidates []choice.Candidate
		want       string
	}{
		{"REDIRECT", candidates, choice.NFTables},
		{"TPROXY", candidates, choice.NFTables},
		{"REDIRECT", lacking, choice.NFTables},
		{"TPROXY", lacking, choice.IPTables},
	} {
		got, err := choice.Choose(t.Context(), plans[test.mode], choice.Options{}, test.candidates...)
		if err != nil {
			t.Fatal(err)
		}
		if got.Name != test.want {
			t.Errorf("%s: got %s", test.mode, got)
		}
	}
	// Without programs, iptables is not available.
	without, err := standard.Candidates(nftables.Options{}, iptables.Options{Runner: missing{}})
	if err != nil {
		t.Fatal(err)
	}
	var nobody *choice.Error
	_, err = choice.Choose(t.Context(), plans["TPROXY"], choice.Options{}, lacking[0], without[1])
	if !errors.As(err, &nobody) || len(nobody.Rejections) != 2 || !strings.Contains(err.Error(), "install iptables") {
		t.Errorf("got %v", err)
	}
}

// missing is a runner without programs.
type missing struct{}

// Run implements [iptables.Runner].
func (missing) Run(context.Context, iptables.Command) (iptables.Output, error) {
	return iptables.Output{}, exec.ErrNotFound
}

// TestFallback uses iptables while nf_tables lack a feature, and nftables afterwards.
func TestFallback(t *testing.T) {
	t.Parallel()
	ns, plan := newPod(t), sidecars(t)["TPROXY"]
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{Flavour: iptables.Legacy})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		lacks, want string
	}{{"tproxy", "iptables legacy"}, {"nothing", "nftables"}, {"tproxy", "iptables legacy"}} {
		d, err := choice.New(choice.Candidate{Name: choice.NFTables, Dataplane: kernel{candidates[0].Dataplane, step.lacks}}, candidates[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Apply(t.Context(), ns.Netns, plan); err != nil {
			t.Fatal(err)
		}
		if got := ns.rules(t); len(got) != 1 || !got[step.want] {
			t.Errorf("got rules of %v, want of %s", got, step.want)
		}
		state, err := d.Observe(t.Context(), ns.Netns, "mesh-test")
		if err != nil {
			t.Fatal(err)
		}
		if drift := interception.Diff(plan, state); drift != nil {
			t.Errorf("by %s: drift %v", step.want, drift)
		}
	}
}

// TestObserveForeign reads other programs' chains with each dataplane that the kernel supports,
// whichever applied the owner's rules.
func TestObserveForeign(t *testing.T) {
	t.Parallel()
	ns, plan := newPod(t), sidecars(t)["REDIRECT"]
	ns.Run(t, "", "nft", "add table ip other; add chain ip other output { type filter hook output priority 7; }")
	candidates, err := standard.Candidates(nftables.Options{Foreign: true}, iptables.Options{Flavour: iptables.Legacy, Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := candidates[1].Dataplane.Apply(t.Context(), ns.Netns, plan); err != nil {
		t.Fatal(err)
	}
	d, err := choice.New(candidates...)
	if err != nil {
		t.Fatal(err)
	}
	state, err := d.Observe(t.Context(), ns.Netns, plan.Owner)
	if err != nil {
		t.Fatal(err)
	}
	found := slices.ContainsFunc(state.Foreign, func(c interception.ForeignChain) bool { return c.Table == "ip other" && c.Priority == 7 })
	if !found || interception.Diff(plan, state) != nil {
		t.Errorf("got %+v", state.Foreign)
	}
}

// TestScratch checks that the namespace is new and empty.
func TestScratch(t *testing.T) {
	t.Parallel()
	one, err := choice.NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	other, err := choice.NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	if one.ID() == other.ID() {
		t.Error("both are the same")
	}
	for _, ns := range []*interception.Netns{one, other} {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	}
}
