// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/golden"
)

var update = flag.Bool("update", false, "rewrite the golden files from what the code gives")

// TestGolden compares what follows from each pod with what stands in its file.
func TestGolden(t *testing.T) {
	t.Parallel()
	cases, err := golden.Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			for _, section := range sections(t, c) {
				if *update {
					c.SetSection(section.name, section.text)
				} else if diff := cmp.Diff(c.Section(section.name), section.text); diff != "" {
					t.Errorf("%s differs (-file +now); if that is meant, run go test with -update:\n%s", section.name, diff)
				}
			}
			if *update {
				if err := c.Save(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

type section struct{ name, text string }

// sections are the texts that follow from a case.
func sections(t *testing.T, c golden.Case) []section {
	t.Helper()
	plan, warnings, err := c.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var warned strings.Builder
	for _, w := range warnings {
		fmt.Fprintln(&warned, w)
	}
	script, err := render.NFT(plan)
	if err != nil {
		t.Fatal(err)
	}
	var traces strings.Builder
	for _, packet := range c.Packets {
		outcome, err := trace.Trace(golden.World(plan), packet)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&traces, "%s\n\t%s\n", packet, outcome)
	}
	return []section{
		{"warnings", warned.String()},
		{"plan", plan.String()},
		{"nft", string(script)},
		{"traces", traces.String()},
	}
}

// TestPacketsPrintAsTheyAreRead makes sure that a golden file says what is traced.
func TestPacketsPrintAsTheyAreRead(t *testing.T) {
	t.Parallel()
	cases, err := golden.Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for _, packet := range c.Packets {
			again, err := golden.ParsePacket(packet.String())
			if diff := cmp.Diff(packet, again, cmp.Comparer(func(a, b trace.Packet) bool { return a == b })); err != nil || diff != "" {
				t.Errorf("%s: %q reads back with %v:\n%s", c.Name, packet, err, diff)
			}
		}
	}
}
