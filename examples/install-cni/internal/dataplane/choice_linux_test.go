// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/examples/install-cni/internal/dataplane"
	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

// kernel is a dataplane on a kernel that lacks a feature: it refuses rules with that, and passes
// the rest to the real one.
type kernel struct {
	interception.Dataplane
	lacks string
	tries *int
}

// Apply refuses rules that need the feature.
func (k kernel) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	*k.tries++
	for _, r := range p.Rules() {
		if strings.HasPrefix(r.Action.String(), k.lacks) {
			return fmt.Errorf("apply plan: %w", &interception.ApplyError{At: string(r.ID), Why: r.Why, Err: fmt.Errorf("module: %w", interception.ErrUnsupported)})
		}
	}
	return k.Dataplane.Apply(ctx, ns, p)
}

// candidates returns the real ones, each on a kernel that lacks an action.
func candidates(t *testing.T, lacking ...string) (all []choice.Candidate, tries *int) {
	t.Helper()
	return candidatesBy(t, iptables.Options{}, lacking...)
}

// candidatesBy is [candidates] with these options of iptables.
func candidatesBy(t *testing.T, o iptables.Options, lacking ...string) (all []choice.Candidate, tries *int) {
	t.Helper()
	all, err := standard.Candidates(nftables.Options{}, o)
	if err != nil {
		t.Fatal(err)
	}
	tries = new(int)
	for i, lacks := range lacking {
		all[i].Dataplane = kernel{all[i].Dataplane, lacks, tries}
	}
	return all, tries
}

func TestChoose(t *testing.T) {
	t.Parallel()
	const all, nothing, tproxy, redirect = "?", "", "tproxy", "redirect"
	for _, test := range []struct {
		nft, ipt, setting string
		want              dataplane.Choice
		log               string
	}{
		{all, all, "auto", dataplane.Choice{Setting: "nftables"}, `level=INFO msg="chose how the plugin writes rules" dataplane=nftables reason="nftables: the kernel has`},
		{all, all, "nftables", dataplane.Choice{Setting: "nftables"}, "nftables: the kernel has"},
		{all, all, "iptables", dataplane.Choice{Setting: "iptables", IPTables: true}, "iptables: the kernel has"},
		{nothing, all, "auto", dataplane.Choice{Setting: "iptables", IPTables: true}, "not nftables: "},
		{redirect, all, "auto", dataplane.Choice{Setting: "iptables", IPTables: true}, "not nftables: "},
		{tproxy, all, "auto", dataplane.Choice{Setting: "auto", IPTables: true}, `dataplane="nftables, iptables"`},
		{tproxy, tproxy, "auto", dataplane.Choice{Setting: "nftables"}, "level=WARN"},
		{tproxy, all, "nftables", dataplane.Choice{Setting: "nftables"}, "pods that ask for what is missing are refused"},
		{redirect, redirect, "auto", dataplane.Choice{Setting: "auto"}, "level=ERROR"},
		{nothing, all, "nftables", dataplane.Choice{Setting: "nftables"}, "level=ERROR"},
		{all, nothing, "iptables", dataplane.Choice{Setting: "iptables", IPTables: true}, "level=ERROR"},
	} {
		t.Run(test.setting+" without "+test.nft+" and "+test.ipt, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			from, tries := candidates(t, test.nft, test.ipt)
			chooser := dataplane.New(dataplane.Options{
				Mesh: istiomesh.Mesh(),
				Log:  slog.New(slog.NewTextHandler(&log, nil)), Candidates: from, Proc: procOf(t, "usr/bin/nsenter"),
			})
			if got := chooser.Choose(t.Context(), test.setting); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if text := log.String(); !strings.Contains(text, test.log) || strings.Count(text, "\n") != 1 {
				t.Errorf("got log %s, want %s", text, test.log)
			}
			asked := *tries
			if got := chooser.Choose(t.Context(), test.setting); got != test.want || *tries != asked || strings.Count(log.String(), "\n") != 1 {
				t.Errorf("asked again: got %+v, after %d and then %d trials", got, asked, *tries)
			}
		})
	}
}

// TestWithoutIPTablesHere: the daemon's own image has no iptables. The plugin starts the node's
// programs, so it does not matter.
func TestWithoutIPTablesHere(t *testing.T) {
	t.Parallel()
	absent := map[string][]string{}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"-legacy-restore", "-legacy-save", "-nft-restore", "-nft-save"} {
			absent[family+suffix] = []string{"no-such-iptables"}
		}
	}
	const notKnown, chose = "is unknown until the first pod starts", "chose how the plugin writes rules"
	for _, test := range []struct {
		nft, setting string
		want         dataplane.Choice
		log          []string
		hint         bool
	}{
		{"?", pluginconf.Auto, dataplane.Choice{Setting: "nftables"}, []string{"level=INFO", chose}, false},
		{"?", pluginconf.IPTables, dataplane.Choice{Setting: "iptables", IPTables: true}, []string{"level=INFO", notKnown, "no-such-iptables"}, true},
		{"tproxy", pluginconf.Auto, dataplane.Choice{Setting: "auto", IPTables: true}, []string{"level=INFO", chose, `"nftables, iptables"`}, true},
		{"redirect", pluginconf.Auto, dataplane.Choice{Setting: "auto", IPTables: true}, []string{"level=WARN", notKnown, "nftables: "}, true},
		{"redirect", pluginconf.NFTables, dataplane.Choice{Setting: "nftables"}, []string{"level=ERROR", "cannot capture pods"}, false},
	} {
		t.Run(test.setting+" without "+test.nft, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			from, _ := candidatesBy(t, iptables.Options{Programs: absent}, test.nft)
			got := dataplane.New(dataplane.Options{
				Mesh: istiomesh.Mesh(),
				Log:  slog.New(slog.NewTextHandler(&log, nil)), Candidates: from, Proc: procOf(t, "usr/bin/nsenter"),
			}).Choose(t.Context(), test.setting)
			if got != test.want || strings.Contains(log.String(), "packages iptables and") != test.hint || strings.Count(log.String(), "\n") != 1 {
				t.Errorf("got %+v and log %s, want %+v", got, &log, test.want)
			}
			for _, want := range test.log {
				if !strings.Contains(log.String(), want) {
					t.Errorf("got log %s, want %q", &log, want)
				}
			}
		})
	}
}

// procOf returns the proc mount of a node that has these programs.
func procOf(t *testing.T, programs ...string) string {
	t.Helper()
	proc := t.TempDir()
	for _, program := range programs {
		path := filepath.Join(proc, "1/root", program)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

// TestPodsWithUsersOfTheirOwn logs a warning wherever iptables may write rules for such pods and
// the node has no nsenter. If the daemon cannot look, it logs a hint.
func TestPodsWithUsersOfTheirOwn(t *testing.T) {
	t.Parallel()
	merged := procOf(t, "usr/bin/nsenter") // as in a distribution with merged directories
	if err := os.Symlink("usr/bin", filepath.Join(merged, "1/root/bin")); err != nil {
		t.Fatal(err)
	}
	elsewhere := procOf(t, "usr/bin/iptables")
	if err := os.Symlink("/run/current-system/sw/bin/nsenter", filepath.Join(elsewhere, "1/root/usr/bin/nsenter")); err != nil {
		t.Fatal(err)
	}
	unclear := procOf(t, "opt/nsenter")
	if err := os.Symlink("/opt", filepath.Join(unclear, "1/root/bin")); err != nil {
		t.Fatal(err)
	}
	const warning, hint = "level=WARN", "level=INFO msg=\"whether the node has nsenter is not known"
	for name, test := range map[string]struct {
		nft, setting, proc string
		want               string
	}{
		"it isn't there, nor needed":    {"?", pluginconf.Auto, procOf(t, "usr/bin/iptables"), ""},
		"only nftables may be chosen":   {"?", pluginconf.NFTables, procOf(t, "usr/bin/iptables"), ""},
		"it isn't there":                {"?", pluginconf.IPTables, procOf(t, "usr/bin/iptables"), warning},
		"it isn't there, by the kernel": {"redirect", pluginconf.Auto, procOf(t, "usr/bin/iptables"), warning},
		"some pods need it":             {"tproxy", pluginconf.Auto, procOf(t, "usr/bin/iptables"), warning},
		"it is there":                   {"?", pluginconf.IPTables, procOf(t, "bin/nsenter"), ""},
		"it is in /usr/bin":             {"?", pluginconf.IPTables, merged, ""},
		"it is a link":                  {"tproxy", pluginconf.Auto, elsewhere, ""},
		"no /proc is mounted":           {"?", pluginconf.IPTables, "", hint},
		"it can't be opened":            {"tproxy", pluginconf.Auto, procOf(t), hint},
		"it leads elsewhere":            {"?", pluginconf.IPTables, unclear, hint},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			from, _ := candidates(t, test.nft)
			dataplane.New(dataplane.Options{
				Mesh: istiomesh.Mesh(),
				Log:  slog.New(slog.NewTextHandler(&log, nil)), Candidates: from, Proc: test.proc,
			}).Choose(t.Context(), test.setting)
			said := strings.Contains(log.String(), "hostUsers: false") && strings.Contains(log.String(), "install package util-linux")
			if said != (test.want != "") || !strings.Contains(log.String(), test.want) {
				t.Errorf("got log %s, want %q", &log, test.want)
			}
		})
	}
}

func TestWhatCannotBeFoundOutIsSaid(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]dataplane.Choice{
		"auto": {Setting: "auto", IPTables: true}, "nftables": {Setting: "nftables"}, "iptables": {Setting: "iptables", IPTables: true},
	} {
		var log bytes.Buffer
		chooser := dataplane.New(dataplane.Options{
			Mesh:    istiomesh.Mesh(),
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
			Scratch: func() (*interception.Netns, error) { return nil, errors.New("not permitted") },
		})
		if got := chooser.Choose(t.Context(), setting); got != want || !strings.Contains(log.String(), "not permitted") ||
			strings.Contains(log.String(), "util-linux") != want.IPTables {
			t.Errorf("%s: got %+v, log %s", setting, got, log.String())
		}
	}
}

// busy is a dataplane on a node that is too busy for the first trials.
type busy struct {
	interception.Dataplane
	fails *int
	err   error
}

// Apply fails some times.
func (b busy) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	if *b.fails > 0 {
		*b.fails--
		return b.err
	}
	return b.Dataplane.Apply(ctx, ns, p)
}

// TestAFailedTrialIsNoFact: what a trial does not show is asked again, and the pods of the node are
// captured meanwhile, whichever dataplane it needs.
func TestAFailedTrialIsNoFact(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lacks string
		err   error
		want  dataplane.Choice
	}{
		"a deadline":                      {"?", context.DeadlineExceeded, dataplane.Choice{Setting: "nftables"}},
		"no memory":                       {"?", syscall.ENOMEM, dataplane.Choice{Setting: "nftables"}},
		"try again, where nftables lacks": {"", syscall.EAGAIN, dataplane.Choice{Setting: "iptables", IPTables: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, _ := candidates(t, test.lacks)
			fails := 2
			from[0].Dataplane = busy{from[0].Dataplane, &fails, fmt.Errorf("apply plan: %w", test.err)}
			var log bytes.Buffer
			chooser := dataplane.New(dataplane.Options{
				Mesh: istiomesh.Mesh(), Log: slog.New(slog.NewTextHandler(&log, nil)), Candidates: from, Proc: procOf(t, "usr/bin/nsenter"),
			})
			for _, want := range []dataplane.Choice{{Setting: "auto", IPTables: true}, {Setting: "auto", IPTables: true}, test.want, test.want} {
				if got := chooser.Choose(t.Context(), "auto"); got != want {
					t.Errorf("got %+v, want %+v; log:\n%s", got, want, &log)
				}
			}
			if n := strings.Count(log.String(), "is unknown"); n != 1 {
				t.Errorf("said %d times:\n%s", n, &log)
			}
		})
	}
}

// denied is a dataplane of a process that may not use it.
type denied struct{ interception.Dataplane }

// Apply is not permitted.
func (denied) Apply(context.Context, *interception.Netns, *interception.Plan) error {
	return fmt.Errorf("apply plan: %w (it takes CAP_NET_ADMIN)", syscall.EPERM)
}

// TestALackOfRightsIsNoLackOfTheKernel: the plugin has rights that the daemon was not given.
func TestALackOfRightsIsNoLackOfTheKernel(t *testing.T) {
	t.Parallel()
	from, _ := candidates(t)
	for i := range from {
		from[i].Dataplane = denied{from[i].Dataplane}
	}
	var log bytes.Buffer
	got := dataplane.New(dataplane.Options{Mesh: istiomesh.Mesh(), Log: slog.New(slog.NewTextHandler(&log, nil)), Candidates: from}).Choose(t.Context(), "auto")
	for _, word := range []string{"level=INFO", "is unknown until the first pod starts", "CAP_NET_ADMIN"} {
		if got != (dataplane.Choice{Setting: "auto"}) || !strings.Contains(log.String(), word) {
			t.Errorf("got %+v and log %s, want %q", got, &log, word)
		}
	}
}
