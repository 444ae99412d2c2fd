// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

// twoTables are chains of the owner M in two tables, beside others.
func twoTables() []kernelChain {
	return []kernelChain{
		{"nat", "M_B", false, 1},
		{"nat", "M_A", false, 3},
		{"nat", "OTHERS", false, 300},
		{"nat", "OUTPUT", true, 1},
		{"nat", "PREROUTING", true, 0},
		{"nat", "elsewhere", true, 0},
		{"filter", "M_A", false, 0},
		{"raw", "X", false, 0},
		{"mangle", "INPUT", true, 0},
		{"no-table-of-iptables", "M_Z", false, 0},
	}
}

const (
	allAsked = "*mangle\n-S INPUT\nCOMMIT\n*nat\n-S PREROUTING\n-S OUTPUT\n-S M_A\n-S M_B\nCOMMIT\n*filter\n-S M_A\nCOMMIT"
	answered = "-P INPUT ACCEPT\n-P PREROUTING ACCEPT\n-P OUTPUT ACCEPT\n-A OUTPUT -j M_A\n" +
		"-N M_A\n-A M_A -j RETURN\n-A M_A -g M_B\n-N M_B\n-N M_A\n"
)

func TestQuestion(t *testing.T) {
	t.Parallel()
	q := ask(twoTables(), "M_")
	if diff := cmp.Diff(allAsked, strings.Join(q.lines, "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l, ok := q.listing(answered, "M_")
	if !ok {
		t.Fatal("the answer is refused")
	}
	want, err := parseListing("*mangle\n:INPUT ACCEPT\n*nat\n:PREROUTING ACCEPT\n:OUTPUT ACCEPT\n:M_A -\n:M_B -\n-A OUTPUT -j M_A\n-A M_A -j RETURN\n-A M_A -g M_B\n*filter\n:M_A -\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.owned("M_"), l.owned("M_"), cmp.AllowUnexported(table{}, chain{}, hook{}, hookRule{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, answer := range map[string]string{
		"nothing":                  "",
		"a chain less":             strings.TrimSuffix(answered, "-N M_A\n"),
		"a chain more":             answered + "-N M_C\n",
		"another order":            "-P INPUT ACCEPT\n-P OUTPUT ACCEPT\n-P PREROUTING ACCEPT\n" + answered[strings.Index(answered, "-A OUTPUT"):],
		"a chain of another kind":  strings.Replace(answered, "-P OUTPUT ACCEPT", "-N OUTPUT", 1),
		"no listing":               "hello\n" + answered,
		"a rule less":              strings.Replace(answered, "-A M_A -j RETURN\n", "", 1),
		"a jump that is not shown": strings.Replace(answered, "-A OUTPUT -j M_A\n", "", 1),
	} {
		if _, ok := q.listing(answer, "M_"); ok {
			t.Errorf("%s: the answer is taken", name)
		}
	}
}

func TestCrowded(t *testing.T) {
	t.Parallel()
	all := twoTables()
	if !crowded(all, "M_") {
		t.Error("300 rules are few")
	}
	all[2].uses = manyRules - 2 // and one in OUTPUT
	if crowded(all, "M_") {
		t.Error("few rules are many")
	}
	all[2].uses, all[2].table = 300, "no-table-of-iptables"
	if crowded(all, "M_") {
		t.Error("rules of a table that no program lists are counted")
	}
}

// legacyEntry returns an entry of a legacy table of IPv4.
func legacyEntry(target string, data []byte) []byte {
	entry := make([]byte, 112, 112+targetSize+len(data))
	size := cap(entry)
	binary.NativeEndian.PutUint16(entry[offsetInEntry4:], 112)
	binary.NativeEndian.PutUint16(entry[offsetInEntry4+2:], uint16(size))
	entry = entry[:112+targetSize]
	copy(entry[112+2:], target)
	return append(entry, data...)
}

func legacyVerdict(to int) []byte {
	data := make([]byte, 8)
	binary.NativeEndian.PutUint32(data, uint32(int32(to)))
	return legacyEntry("", data)
}

// legacySample has a rule of OUTPUT that leads to a chain of one rule, and one without a target.
func legacySample() legacyTable {
	const policy, back, size, head = -2, -5, 112 + targetSize + 8, 112 + targetSize + 32
	name := func(text string) []byte {
		return legacyEntry(errorTarget, append([]byte(text), make([]byte, 32-len(text))...))
	}
	t := legacyTable{name: "nat", hooks: map[uint32]string{0: "PREROUTING", size: "OUTPUT"}}
	for _, entry := range [][]byte{
		legacyVerdict(policy),              // PREROUTING
		legacyVerdict(4*size + head),       // OUTPUT: to the chain
		legacyVerdict(3 * size),            // no target: to the next rule
		legacyVerdict(policy),              //
		name("M_A"), legacyVerdict(policy), // the chain
		legacyVerdict(back), name(errorTarget),
	} {
		t.entries = append(t.entries, entry...)
	}
	return t
}

func TestLegacyChains(t *testing.T) {
	t.Parallel()
	got, err := legacySample().chains(interception.IPv4)
	want := []kernelChain{{"nat", "PREROUTING", true, 0}, {"nat", "OUTPUT", true, 2}, {"nat", "M_A", false, 2}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(kernelChain{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for length := range len(legacySample().entries) {
		short := legacySample()
		short.entries = short.entries[:length]
		if chains, err := short.chains(interception.IPv4); err == nil {
			t.Errorf("the first %d bytes: got %v", length, chains)
		}
	}
	if chains, err := legacySample().chains(interception.IPv6); err == nil {
		t.Errorf("as of IPv6: got %v", chains)
	}
	nowhere := legacySample()
	nowhere.hooks = nil
	if chains, err := nowhere.chains(interception.IPv4); err == nil {
		t.Errorf("without the kernel's chains: got %v", chains)
	}
}

// FuzzLegacyChains reads any bytes: it ends, and each chain has a name of the table.
func FuzzLegacyChains(f *testing.F) {
	f.Add(legacySample().entries, true)
	f.Fuzz(func(t *testing.T, entries []byte, v4 bool) {
		family := interception.IPv6
		if v4 {
			family = interception.IPv4
		}
		table := legacySample()
		table.entries = entries
		chains, err := table.chains(family)
		for _, c := range chains {
			if err != nil || c.table != "nat" || c.uses < 0 {
				t.Errorf("got %v and %v", c, err)
			}
		}
	})
}
