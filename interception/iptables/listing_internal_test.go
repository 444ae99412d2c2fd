// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

func TestSplitWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"":                               nil,
		"  -p tcp  -j DROP ":             {"-p", "tcp", "-j", "DROP"},
		`--comment "a b"`:                {"--comment", "a b"},
		`--comment "" -j X`:              {"--comment", "", "-j", "X"},
		`--comment "say \"-j Y\" \\ \'"`: {"--comment", `say "-j Y" \ '`},
		`--log-prefix a\b`:               {"--log-prefix", `a\b`},
	} {
		got, err := splitWords(line)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", line, err, diff)
		}
	}
	if words, err := splitWords(`--comment "open`); err == nil {
		t.Errorf("an open quote: got %q", words)
	}
}

// TestJumpTarget has comments and prefixes that look like jumps.
func TestJumpTarget(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"-p tcp -j M_X": "M_X",
		"-g M_X":        "M_X",
		`-m comment --comment "-j M_X" -j ACCEPT`:                         "ACCEPT",
		"-m comment --comment -j -j ACCEPT":                               "ACCEPT",
		"-m comment --comment -j":                                         "",
		"-j LOG --log-prefix -j --log-level 4":                            "LOG",
		"-j LOG --log-prefix -g":                                          "LOG",
		"-m comment --comment -j ! -s 10.0.0.0/8 -j M_X":                  "M_X",
		"-p tcp -m comment --comment -g -m comment --comment M_X -j DROP": "DROP",
		"-m comment --comment x":                                          "",
	} {
		words, err := splitWords(line)
		if got := jumpTarget(words); got != want || err != nil {
			t.Errorf("%s: got %q and %v, want %q", line, got, err, want)
		}
	}
}

func TestParseListingRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"-A OUTPUT -j DROP\n", "*nat\nhello\n", "*nat\n-A OUTPUT -m comment --comment \"x\n", "[0:0] :X\n"} {
		if l, err := parseListing(text); err == nil {
			t.Errorf("%q: got %v", text, l)
		}
	}
}

// TestDecodeDirection decodes directions, as in other programs' rules.
func TestDecodeDirection(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"--ctdir REPLY": "direction reply",
		"--ctstate RELATED,ESTABLISHED --ctdir ORIGINAL":           "state established,related direction original",
		"--ctdir ORIGINAL --ctstate ESTABLISHED":                   "state established direction original",
		"! --ctstate INVALID,UNTRACKED --ctdir REPLY":              "state != invalid,untracked direction reply",
		"--ctstate INVALID,ESTABLISHED -m conntrack --ctdir REPLY": "state established,invalid direction reply",
		// In one match, unlike in two, an invalid or untracked packet meets any direction.
		"--ctstate INVALID,ESTABLISHED --ctdir REPLY": "",
		"--ctdir REPLY --ctstate UNTRACKED":           "",
		"! --ctstate NEW --ctdir ORIGINAL":            "",
		"! --ctstate INVALID --ctdir ORIGINAL":        "",
		// What iptables does not take.
		"! --ctdir REPLY": "",
		"--ctdir BOTH":    "",
		"--ctdir REPLY -m conntrack --ctdir REPLY": "",
	} {
		d, err := decode(strings.Fields("-m conntrack "+words+" -j ACCEPT"), interception.IPv4, "M_")
		if got := d.match.String(); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", words, got, err, want)
		}
	}
}

// FuzzListing parses any text: the owner's rules lead into a chain of the owner, or are in one.
func FuzzListing(f *testing.F) {
	f.Add("*nat\n:OUTPUT ACCEPT [0:0]\n:M_X - [0:0]\n[1:60] -A OUTPUT -j M_X\n-A M_X -m comment --comment \"a \\\" b\" -j RETURN\nCOMMIT\n")
	f.Add("*mangle\n:OUTPUT ACCEPT [0:0]\n:M_X - [0:0]\n-A M_X ! -d 10.0.0.1/32 -o eth+ -p tcp -m tcp --tcp-flags SYN,ACK SYN -m owner --socket-exists " +
		"-m owner ! --uid-owner 3-4 -m mark ! --mark 0x1/0xff -m conntrack --ctstate NEW -m comment --comment \"x.y 01234567 z\" -j MARK --set-xmark 0x1/0xff\n")
	f.Add("*mangle\n:M_X - [0:0]\n-A M_X -p tcp -m multiport ! --dports 1,3:9 -j TPROXY --on-port 1 --on-ip 0.0.0.0 --tproxy-mark 0x1/0x1\n" +
		"-A M_X -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff\n-A M_X -j CT --zone 1\n-A M_X -j DNAT --to-destination 10.0.0.1:80\n")
	f.Add("# Table `nat' is incompatible, use 'nft' tool.\n*raw\n-N M_Y\n-I OUTPUT 1 -g M_Y\n")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parseListing(text)
		if err != nil {
			return
		}
		set := l.owned("M_")
		for _, table := range set {
			for _, h := range table.hooks {
				for _, r := range h.owned() {
					if !strings.Contains(r.text, "M_") {
						t.Errorf("%q is taken for the owner's", r.text)
					}
				}
			}
		}
		if lines := script(set, set, "M_"); lines != nil && !set.guarded("M_") {
			t.Errorf("what stands is to be changed:\n%s", strings.Join(lines, "\n"))
		}
		_ = script(set, ruleset{}, "M_")
		_ = script(ruleset{}, set, "M_")
		_, _ = readLedger("M_", set)
		folder := folder{owner: "m-m", prefix: "M_"}
		for _, kind := range interception.TableKinds() {
			folder.table(kind, set[kind], set[kind])
			folder.table(kind, set[kind], table{})
			folder.table(kind, table{}, set[kind])
		}
	})
}
