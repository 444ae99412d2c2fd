// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/trace"
)

// copiedMarks copies bits of marks in both directions, and refuses packets by the results: to port
// 80 by the connection's mark, to ports 81 and 82 by the packet's. Only for port 82 does the match
// of the rule fix the bits that it copies.
func copiedMarks(b *interception.Builder) {
	bits := func(value, mask interception.Mark) interception.MarkBits {
		return interception.MarkBits{Value: value, Mask: mask}
	}
	to := func(port interception.Port) interception.L4 { return interception.TCP().To(interception.Ports(port)) }
	marks := b.Mangle("marks")
	marks.Entry(interception.Output, interception.Match{}, "test")
	marks.Do("earlier", interception.Match{}, interception.SetConnMark{Mark: bits(0x30, 0x3c)}, "test")
	marks.Do("set", interception.Match{}, interception.SetMark{Mark: interception.WholeMark(0x15)}, "test")
	marks.Do("save", interception.Match{}, interception.SaveMark{Mask: 0xf}, "test")
	marks.Do("clear", interception.Match{}, interception.SetMark{Mark: interception.WholeMark(0x100)}, "test")
	marks.Do("restore", interception.Match{L4: to(81)}, interception.RestoreMark{Mask: 0xf0}, "test")
	fixed := interception.Match{L4: to(82), ConnMark: interception.Is(bits(0x35, 0xff))}
	marks.Do("fixed", fixed, interception.RestoreMark{Mask: 3}, "test")
	results := b.Filter("results")
	results.Entry(interception.Output, interception.Match{}, "test")
	for i, m := range []interception.Match{
		{ConnMark: interception.Is(interception.WholeMark(0x35))},
		{Mark: interception.Is(interception.WholeMark(0x130))},
		{Mark: interception.Is(interception.WholeMark(0x101))},
	} {
		port := interception.Port(80 + i)
		m.L4 = to(port)
		results.Do(interception.RuleID(fmt.Sprintf("refuse.%d", port)), m, interception.Reject{}, "test")
	}
}

// TestCopiedMarks sends packets whose fate depends on single bits that rules have copied.
func TestCopiedMarks(t *testing.T) {
	t.Parallel()
	plan, err := interception.Build("test-marks", copiedMarks)
	if err != nil {
		t.Fatal(err)
	}
	native, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	legacy, err := iptables.New(iptables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]interception.Dataplane{"nftables": native, "iptables": legacy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := NewPod(t, PodOptions{})
			err := pod.Apply(t.Context(), d, plan)
			if errors.Is(err, interception.ErrUnsupported) {
				t.Logf("not tested, as this kernel cannot do it: %v", err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			world, err := pod.World(plan)
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range []string{"198.51.100.7:%d", "[2001:db8:7::7]:%d"} {
				for port, want := range map[int]Verdict{80: Refused, 81: Refused, 82: Refused, 83: Accepted} {
					packet, err := trace.ParsePacket("tcp uid 0 gid 0 > " + fmt.Sprintf(to, port))
					if err != nil {
						t.Fatal(err)
					}
					c, err := pod.Compare(t.Context(), world, packet)
					if err != nil || c.Disagreement != "" || c.Observed.Verdict != want {
						t.Errorf("%v: %v, want %s\n%s", packet, err, want, c.Report())
					}
				}
			}
		})
	}
}
