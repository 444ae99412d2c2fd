// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/sidecar"
)

func attachment(container, name string) journal.Attachment {
	return journal.Attachment{Network: "pods", ContainerID: container, Interface: name}
}

func record(t *testing.T, container, name string) journal.Record {
	t.Helper()
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{Annotations: map[string]string{
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.0.0.0/8,192.0.2.0/24",
	}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := sidecar.Plan(redirect, interception.Facts{IPv6: true}, "istio-cni")
	if err != nil {
		t.Fatal(err)
	}
	return journal.Record{
		Attachment: attachment(container, name),
		Time:       time.Date(2026, 11, 21, 12, 0, 0, 5000, time.UTC),
		Planner:    "v1.2.3",
		Namespace:  "shop", Name: "cart-0", UID: "0b1c",
		Netns: "/var/run/netns/cni-1", NetnsID: interception.NetnsID{Device: 4, Inode: 4026532281},
		Dataplane: "nftables", Plan: plan,
	}
}

func newJournal(t *testing.T) journal.Journal {
	t.Helper()
	return journal.Journal{Directory: filepath.Join(t.TempDir(), "journal")}
}

func write(t *testing.T, j journal.Journal, r journal.Record) {
	t.Helper()
	if err := j.Write(r); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	j, want := newJournal(t), record(t, "0a1b", "eth0")
	want.ServiceAccount, want.RuntimeUID, want.Leaving = "cart", "0d3e", true
	want.Addresses = []netip.Addr{netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("fd00:10:244:1::a")}
	write(t, j, want)
	got, err := j.Read(want.Attachment)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(samePlan), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	for path, mode := range map[string]fs.FileMode{j.Directory: 0o700, filepath.Join(j.Directory, "pods@0a1b@eth0.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, mode)
		}
	}
}

func samePlan(a, b *interception.Plan) bool { return a.String() == b.String() }

// TestFormOfARecord compares every byte, because records outlive the program that wrote them.
func TestFormOfARecord(t *testing.T) {
	t.Parallel()
	j, r := newJournal(t), record(t, "0a1b", "eth0")
	r.Namespace, r.Plan = "<&>", &interception.Plan{Owner: "istio-cni", Objects: []interception.Object{
		interception.Sysctl{ID: "s", Key: "ipv4/conf/lo/forwarding", Value: 1, Why: "<\u2028>"},
	}}
	write(t, j, r)
	got, err := os.ReadFile(filepath.Join(j.Directory, "pods@0a1b@eth0.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"network":"pods","containerID":"0a1b","interface":"eth0","time":"2026-11-21T12:00:00.000005Z","planner":"v1.2.3",` +
		`"pod":{"namespace":"\u003c\u0026\u003e","name":"cart-0","uid":"0b1c"},` +
		`"netns":{"path":"/var/run/netns/cni-1","device":4,"inode":4026532281},"dataplane":"nftables",` +
		`"plan":{"owner":"istio-cni","objects":[{"sysctl":{"id":"s","key":"ipv4/conf/lo/forwarding","value":1,"why":"\u003c\u2028\u003e"}}]}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheLastRecordOfAnAttachmentCounts(t *testing.T) {
	t.Parallel()
	j, first := newJournal(t), record(t, "0a1b", "eth0")
	write(t, j, first)
	second := first
	second.UID = "0c2d"
	write(t, j, second)
	if got, err := j.Read(first.Attachment); err != nil || got.UID != "0c2d" {
		t.Errorf("%q, %v", got.UID, err)
	}
}

func TestNothingIsKnown(t *testing.T) {
	t.Parallel()
	j, a := newJournal(t), attachment("0a1b", "eth0")
	check := func() {
		t.Helper()
		if _, err := j.Read(a); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Read: %v", err)
		}
		if err := j.Remove(a); err != nil {
			t.Errorf("Remove: %v", err)
		}
		if all, err := j.Attachments(); len(all) > 0 || err != nil {
			t.Errorf("Attachments: %v, %v", all, err)
		}
		if forgotten, err := j.Keep("pods", nil); len(forgotten) > 0 || err != nil {
			t.Errorf("Keep: %v, %v", forgotten, err)
		}
	}
	check() // without a journal
	write(t, j, record(t, "0a1b", "eth0"))
	if err := j.Remove(a); err != nil {
		t.Fatal(err)
	}
	check() // in an empty one
}

func TestAttachmentsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, a := range []journal.Attachment{
		{},
		{"pods", "0a1b", ""},
		{"pods", "", "eth0"},
		{"", "0a1b", "eth0"},
		{"pods", "..", "eth0"},
		{"pods", "a/b", "eth0"},
		{"pods", "a@b", "eth0"},
		{"pods", "a", "eth 0"},
		{"pods", "a", "../eth0"},
		{"../pods", "a", "eth0"},
		{"pods", "a", "an-interface-too-long"},
		{"pods", strings.Repeat("a", 105), "eth0"},
		{strings.Repeat("a", 105), "a", "eth0"},
	} {
		j, r := newJournal(t), record(t, "a", "eth0")
		r.Attachment = a
		_, readErr := j.Read(a)
		for name, err := range map[string]error{"Write": j.Write(r), "Read": readErr, "Remove": j.Remove(a)} {
			if !errors.Is(err, journal.ErrAttachment) {
				t.Errorf("%s of %q: %v", name, a, err)
			}
		}
	}
}

func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	whole := newJournal(t)
	write(t, whole, record(t, "0a1b", "eth0"))
	good, err := os.ReadFile(filepath.Join(whole.Directory, "pods@0a1b@eth0.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want string }{
		"empty":          {"", "unexpected end"},
		"cut":            {string(good[:len(good)/2]), "unexpected end"},
		"newer":          {strings.Replace(string(good), `"version":1`, `"version":2`, 1), "version 2, and this program reads 1"},
		"of another":     {strings.Replace(string(good), "0a1b", "0c2d", 1), "it is that of pods 0c2d eth0"},
		"unknown field":  {strings.Replace(string(good), `"planner"`, `"plannner"`, 1), "unknown field"},
		"without a plan": {`{"version":1,"network":"pods","containerID":"0a1b","interface":"eth0"}`, "it has no plan"},
		"invalid plan":   {strings.Replace(string(good), `"owner":"istio-cni"`, `"owner":"accept"`, 1), "invalid name"},
		"empty address":  {strings.Replace(string(good), `"uid":"0b1c"`, `"uid":"0b1c","addresses":[""]`, 1), "an address of the pod is empty"},
		"no address":     {strings.Replace(string(good), `"uid":"0b1c"`, `"uid":"0b1c","addresses":["x"]`, 1), "ParseAddr"},
		"too large":      {strings.Repeat(" ", 4<<20) + string(good), "larger than the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJournal(t)
			write(t, j, record(t, "0a1b", "eth0"))
			if err := os.WriteFile(filepath.Join(j.Directory, "pods@0a1b@eth0.json"), []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := j.Read(attachment("0a1b", "eth0"))
			if !errors.Is(err, journal.ErrRecord) || !strings.Contains(err.Error(), test.want) || r.Plan != nil {
				t.Errorf("%v, %v, want %q", r, err, test.want)
			}
		})
	}
}

func TestARecordNeedsAPlan(t *testing.T) {
	t.Parallel()
	j, r := newJournal(t), record(t, "0a1b", "eth0")
	r.Plan = nil
	if err := j.Write(r); !errors.Is(err, journal.ErrRecord) {
		t.Error(err)
	}
}

// The record of a plan with an empty condition would read as a plan that matches more.
func TestARecordKeepsNoOtherPlan(t *testing.T) {
	t.Parallel()
	j, r := newJournal(t), record(t, "0a1b", "eth0")
	rule := interception.Rule{
		ID: "r", Match: interception.Match{UID: interception.Is(interception.UIDs())}, Action: interception.Return{}, Why: "why",
	}
	r.Plan = &interception.Plan{Owner: "istio-cni", Objects: []interception.Object{
		interception.Table{Kind: interception.NAT, Chains: []interception.Chain{{Name: "a", Rules: []interception.Rule{rule}}}},
	}}
	if err := j.Write(r); !errors.Is(err, journal.ErrRecord) || !errors.Is(err, interception.ErrPlan) {
		t.Errorf("Write = %v, want ErrRecord and ErrPlan", err)
	}
}

// A relative path would depend on the directory in which the container runtime starts the plugin.
func TestAJournalNeedsADirectory(t *testing.T) {
	t.Parallel()
	for _, j := range []journal.Journal{{}, {Directory: "journal"}} {
		r := record(t, "0a1b", "eth0")
		_, readErr := j.Read(r.Attachment)
		_, listErr := j.Attachments()
		_, keepErr := j.Keep("pods", nil)
		for name, err := range map[string]error{
			"Write": j.Write(r), "Read": readErr, "Remove": j.Remove(r.Attachment), "Attachments": listErr, "Keep": keepErr,
		} {
			if !errors.Is(err, journal.ErrDirectory) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestJournalsOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(directory string) error{
		"a file": func(directory string) error { return os.WriteFile(directory, nil, 0o600) },
		"a link": func(directory string) error { return os.Symlink(t.TempDir(), directory) },
		"open to all": func(directory string) error {
			return errors.Join(os.Mkdir(directory, 0o700), os.Chmod(directory, 0o777)) //nolint:gosec // the test needs a directory that others can write to
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJournal(t)
			if err := spoil(j.Directory); err != nil {
				t.Fatal(err)
			}
			r := record(t, "0a1b", "eth0")
			if err := j.Write(r); !errors.Is(err, journal.ErrDirectory) || !strings.Contains(err.Error(), "remove it") {
				t.Errorf("Write: %v", err)
			}
			if _, err := j.Read(r.Attachment); !errors.Is(err, journal.ErrDirectory) || !strings.Contains(err.Error(), "remove it") {
				t.Errorf("Read: %v", err)
			}
		})
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	other := record(t, "0a1b", "eth0")
	other.Network = "storage"
	for _, r := range []journal.Record{record(t, "0a1b", "eth0"), record(t, "0a1b", "net1"), record(t, "0c2d", "eth0"), other} {
		write(t, j, r)
	}
	leave(t, j, "pods@0e3f@eth0.json.tmp.0123456789abcdef", time.Hour)
	leave(t, j, "notes.txt", time.Hour)
	leave(t, j, "x.json", time.Hour)
	forgotten, err := j.Keep("pods", []journal.Attachment{attachment("0a1b", "net1"), attachment("ffff", "eth0")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]journal.Attachment{attachment("0a1b", "eth0"), attachment("0c2d", "eth0")}, forgotten); diff != "" {
		t.Error(diff)
	}
	mustHave(t, j, "notes.txt", "pods@0a1b@net1.json", "storage@0a1b@eth0.json", "x.json")
}

// leave puts an empty file of the given age into the journal.
func leave(t *testing.T, j journal.Journal, name string, age time.Duration) {
	t.Helper()
	path := filepath.Join(j.Directory, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
		t.Fatal(err)
	}
}

func mustHave(t *testing.T, j journal.Journal, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(j.Directory)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

// Container runtimes older than GC only call DEL. A young file may still have a writer.
func TestRemoveTakesAwayWhatACrashLeft(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	write(t, j, record(t, "0a1b", "eth0"))
	leave(t, j, "pods@0a1b@eth0.json.tmp.0123456789abcdef", time.Hour)
	leave(t, j, "pods@0c2d@eth0.json.tmp.0123456789abcdef", time.Second)
	if err := j.Remove(attachment("0a1b", "eth0")); err != nil {
		t.Fatal(err)
	}
	mustHave(t, j, "pods@0c2d@eth0.json.tmp.0123456789abcdef")
}

func TestKeepGoesOn(t *testing.T) {
	t.Parallel()
	j := newJournal(t)
	write(t, j, record(t, "0c2d", "eth0"))
	if err := os.MkdirAll(filepath.Join(j.Directory, "pods@0a1b@eth0.json", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	forgotten, err := j.Keep("pods", nil)
	if err == nil || !strings.Contains(err.Error(), "pods@0a1b@eth0.json") || len(forgotten) != 1 {
		t.Errorf("%v, %v", forgotten, err)
	}
}
