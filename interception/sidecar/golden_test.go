// SPDX-License-Identifier: Apache-2.0

package sidecar_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/golden"
)

var update = flag.Bool("update", false, "rewrite the golden files from what the code gives")

// TestGolden compares what follows from each pod with the pod's file.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, c := range goldens(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			names := inputs(c)
			for _, section := range sections(t, c) {
				names = append(names, section.name)
				if *update {
					c.SetSection(section.name, section.text)
				} else if diff := cmp.Diff(c.Section(section.name), section.text); diff != "" {
					t.Errorf("%s differs (-file +now); if that is meant, run go test with -update:\n%s", section.name, diff)
				}
			}
			if diff := cmp.Diff(names, c.Sections()); diff != "" {
				t.Errorf("files of the case (-want +got):\n%s", diff)
			}
			if *update {
				if err := c.Save(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func goldens(t *testing.T) []golden.Case {
	t.Helper()
	cases, err := golden.Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	large, err := golden.Load(filepath.Join("testdata", golden.LargeIDs))
	if err != nil {
		t.Fatal(err)
	}
	return append(cases, large...)
}

// inputs returns the files of a case that describe it.
func inputs(c golden.Case) []string {
	if c.Section("overrides.json") == "" {
		return []string{"pod.json", "facts.json", "packets"}
	}
	return []string{"pod.json", "facts.json", "overrides.json", "packets"}
}

type section struct{ name, text string }

// sections returns the texts that follow from a case.
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
		{"iptables-v4", iptables(plan, interception.IPv4)},
		{"iptables-v6", iptables(plan, interception.IPv6)},
		{"traces", traces.String()},
	}
}

// iptables returns the text for one family, or the reason why there is no text.
func iptables(plan *interception.Plan, family interception.Family) string {
	text, err := render.IPTablesRestore(plan, family)
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	return string(text)
}

// TestPacketsPrintAsTheyAreRead checks that a golden file shows the packets that are traced.
func TestPacketsPrintAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range goldens(t) {
		for _, packet := range c.Packets {
			again, err := trace.ParsePacket(packet.String())
			if diff := cmp.Diff(packet, again, cmp.Comparer(func(a, b trace.Packet) bool { return a == b })); err != nil || diff != "" {
				t.Errorf("%s: %q reads back with %v:\n%s", c.Name, packet, err, diff)
			}
		}
	}
}
