// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// supports tries every feature of a plan, one at a time, over a plan that is in place.
func (s *suite) supports(t *testing.T) {
	t.Helper()
	base := s.supported(t, s.standard)[0].Plan
	for _, f := range features() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			plan, err := interception.Build(caseOwner, f.build)
			if err != nil {
				t.Fatal(err)
			}
			ns := s.Ground.Namespace(t)
			s.apply(t, LawSupports, ns, base)
			before := s.Ground.Dump(t, ns)
			supported, applied := s.New(t).Supports(plan), s.New(t).Apply(t.Context(), ns, plan)
			s.judge(t, ns, plan, supported, applied)
			if applied != nil {
				LawSupports.same(t, applied.Error(), "the namespace before", before, "after the refused Apply", s.Ground.Dump(t, ns))
			}
		})
	}
}

// judge compares the results of Supports and Apply for a plan.
func (s *suite) judge(t *testing.T, ns *interception.Netns, plan *interception.Plan, supported, applied error) {
	t.Helper()
	if supported == nil && applied == nil {
		s.holds(t, LawSupports, ns, plan)
		return
	}
	switch {
	case supported == nil && errors.Is(applied, interception.ErrUnsupported):
		t.Logf("not tested further, as this kernel cannot do it: %v", applied)
	case supported == nil:
		LawSupports.broken(t, "Supports says nothing, and Apply fails with what is not ErrUnsupported: %v\nplan:\n%s", applied, plan)
	case !errors.Is(supported, interception.ErrUnsupported) || !errors.Is(applied, interception.ErrUnsupported):
		LawSupports.broken(t, "both should be ErrUnsupported:\nSupports: %v\nApply: %v\nplan:\n%s", supported, applied, plan)
	case !strings.Contains(supported.Error(), featureName):
		LawSupports.broken(t, "Supports does not name the part, whose id or name begins with %q: %v\nplan:\n%s", featureName, supported, plan)
	default:
		t.Logf("not supported: %v", supported)
	}
}

// packets sends the packets of every case, each case in a pod of its own, one packet after the
// other. Parallel subtests would wait until all pods exist, and every program that a test starts
// meanwhile would begin with a copy of thousands of their descriptors.
func (s *suite) packets(t *testing.T) {
	t.Helper()
	s.each(t, s.all(t), func(t *testing.T, c Case) {
		t.Helper()
		pod := NewPod(t, c.Pod)
		if err := pod.Apply(t.Context(), s.New(t), c.Plan); err != nil {
			t.Fatalf("law %q: Apply: %v\nplan:\n%s", string(LawPackets), err, c.Plan)
		}
		world, err := pod.World(c.Plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, packet := range c.Packets {
			t.Run(packet.String(), func(t *testing.T) {
				comparePacket(t, pod, world, packet)
			})
		}
	})
}

func comparePacket(t *testing.T, pod *Pod, world trace.World, packet trace.Packet) {
	t.Helper()
	c, err := pod.Compare(t.Context(), world, packet)
	if errors.Is(err, ErrNeedsSecondUID) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.Disagreement != "" {
		LawPackets.broken(t, "%s", c.Report())
	}
}
