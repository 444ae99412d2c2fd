// SPDX-License-Identifier: Apache-2.0

package goldencases

import (
	"context"
	"errors"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// Refute changes a rule of golden plans, the given number of times, and package proof compares the
// changed plan with what the dataplane observes of the golden one. If the answer is No, the example
// packet is sent into a pod with either plan, and must end as the traces predict. With every = n,
// Refute takes each n-th case.
func Refute(t *testing.T, dataplane interception.Dataplane, dir string, every, mutations int) {
	t.Helper()
	found := tally{of: map[string]int{}}
	t.Run("cases", func(t *testing.T) {
		for i, c := range Load(t, dir) {
			if i%every == 0 {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					(&refutation{Case: c, T: t, dataplane: dataplane}).refute(mutations, &found)
				})
			}
		}
	})
	t.Log(found.of)
}

// tally counts the results of mutations.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[what]++
}

// refutation is a case whose plan is changed.
type refutation struct {
	dataplanetest.Case
	*testing.T

	dataplane interception.Dataplane
	pod       *dataplanetest.Pod
	state     interception.State
	bare      trace.World
}

func (r *refutation) refute(mutations int, found *tally) {
	if len(slices.Collect(r.Plan.Tables())) == 0 {
		return
	}
	r.pod = r.podWith(r.Plan)
	var err error
	if r.bare, err = r.pod.World(nil); err != nil {
		r.Fatal(err)
	}
	// A socket reaches a link-local address only with the name of the link.
	for i := range r.bare.Namespaces[0].Links {
		l := &r.bare.Namespaces[0].Links[i]
		l.Addresses = slices.DeleteFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() })
	}
	if r.state, err = Observe(r.Context(), r.dataplane, r.pod, r.Plan.Owner); err != nil {
		r.Fatal(err)
	}
	seed := fnv.New64()
	_, _ = seed.Write([]byte(r.Name))
	choose := sample.Seeded(seed.Sum64())
	for tries, done := 0, 0; done < mutations && tries < 1000; tries++ {
		changed, how := sample.Mutation(choose, r.Plan)
		if changed.Validate() == nil && r.dataplane.Supports(changed) == nil && changed.Fingerprint() != r.Plan.Fingerprint() {
			found.add(r.mutation(changed, how))
			done++
		}
	}
}

// podWith returns the pod of the case with a plan.
func (r *refutation) podWith(plan *interception.Plan) *dataplanetest.Pod {
	pod := dataplanetest.NewPod(r.T, r.Pod)
	if err := pod.Apply(r.Context(), r.dataplane, plan); err != nil {
		r.Fatal(err)
	}
	return pod
}

// mutation compares a changed plan with the observed golden one, and returns the result.
func (r *refutation) mutation(changed *interception.Plan, how string) string {
	got, err := proof.Equivalent(r.state, changed, proof.Options{World: r.bare})
	switch {
	case err != nil || got.Answer == proof.Unknown:
		r.Errorf("%s: %v, %v", how, got, err)
		return "a failure"
	case got.Answer == proof.Yes:
		return "changes nothing"
	default:
		what := confirmation{*r, got, [2]*interception.Plan{r.Plan, changed}, how}.confirm()
		if !strings.HasPrefix(what, "confirmed") {
			r.Logf("%s: %s: %v; its flow is %+v", what, how, got, got.Packet.Flow)
		}
		return what
	}
}

// Observe reads with a dataplane what an owner has in a pod.
func Observe(
	ctx context.Context, dataplane interception.Dataplane, pod *dataplanetest.Pod, owner interception.Owner,
) (state interception.State, err error) {
	ns, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		return interception.State{}, err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	return dataplane.Observe(ctx, ns, owner)
}
