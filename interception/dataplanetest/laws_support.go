// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// supports tries every feature of a plan, one at a time, over a plan that is in place.
func (x *trial) supports() {
	base := x.usual()[0].Plan
	for _, f := range features() {
		x.run(f.name, func(x *trial) {
			plan, err := interception.Build(caseOwner, f.build)
			if err != nil {
				x.Fatal(err)
			}
			x.ns = x.ns.With(otherNamespace, x.Ground.Namespace(x.T))
			x.apply(base)
			before := x.dump()
			supported, applied := x.New(x.T).Supports(plan), x.New(x.T).Apply(x.Context(), x.ns, plan)
			x.judge(plan, supported, applied)
			if applied != nil {
				x.same(applied.Error(), "the namespace before", before, "after the refused Apply", x.dump())
			}
		})
	}
}

// judge compares the results of Supports and Apply for a plan.
func (x *trial) judge(plan *interception.Plan, supported, applied error) {
	if supported == nil && applied == nil {
		x.holds(plan)
		return
	}
	switch {
	case supported == nil && errors.Is(applied, interception.ErrUnsupported):
		x.Logf("not tested further, as this kernel cannot do it: %v", applied)
	case supported == nil:
		x.broken("Supports says nothing, and Apply fails with what is not ErrUnsupported: %v\nplan:\n%s", applied, plan)
	case !errors.Is(supported, interception.ErrUnsupported) || !errors.Is(applied, interception.ErrUnsupported):
		x.broken("both should be ErrUnsupported:\nSupports: %v\nApply: %v\nplan:\n%s", supported, applied, plan)
	case !strings.Contains(supported.Error(), featureName):
		x.broken("Supports does not name the part, whose id or name begins with %q: %v\nplan:\n%s", featureName, supported, plan)
	default:
		x.Logf("not supported: %v", supported)
	}
}

// packets sends the packets of every case, each case in a pod of its own, one packet after the
// other. Parallel subtests would wait until all pods exist, and every program that a test starts
// meanwhile would begin with a copy of thousands of their descriptors.
func (x *trial) packets() {
	x.each(x.all(), func(x *trial, c Case) {
		pod := NewPod(x.T, c.Pod)
		if err := pod.Apply(x.Context(), x.New(x.T), c.Plan); err != nil {
			x.Fatalf("law %q: Apply: %v\nplan:\n%s", string(x.law), err, c.Plan)
		}
		world, err := pod.World(c.Plan)
		if err != nil {
			x.Fatal(err)
		}
		for _, packet := range c.Packets {
			x.Run(packet.String(), func(t *testing.T) {
				c, err := pod.Compare(t.Context(), world, packet)
				switch {
				case errors.Is(err, ErrNeedsSecondUID):
					t.Skip(err)
				case err != nil:
					t.Fatal(err)
				case c.Disagreement != "":
					(&trial{T: t, law: x.law}).broken("%s", c.Report())
				}
			})
		}
	})
}
