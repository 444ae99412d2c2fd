// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/examples/install-cni/internal/dataplane"
	"github.com/meshcni/meshcni/examples/internal/pluginconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

// kernel is a dataplane on a kernel that lacks a feature: it refuses rules with it, and has the real one do the rest.
type kernel struct {
	interception.Dataplane
	lacks string
	tries *int
}

// Apply is that of the dataplane.
func (k kernel) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	*k.tries++
	for _, r := range p.Rules() {
		if strings.HasPrefix(r.Action.String(), k.lacks) {
			return fmt.Errorf("apply plan: %w", &interception.ApplyError{At: string(r.ID), Why: r.Why, Err: fmt.Errorf("module: %w", interception.ErrUnsupported)})
		}
	}
	return k.Dataplane.Apply(ctx, ns, p)
}

// candidates are the real ones, each on a kernel that lacks an action.
func candidates(t *testing.T, lacking ...string) (all []choice.Candidate, tries *int) {
	t.Helper()
	all, err := choice.Standard(nftables.Options{}, iptables.Options{})
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
			chooser := dataplane.New(dataplane.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Candidates: from})
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

// TestPodsWithUsersOfTheirOwn are warned of wherever iptables may write their rules and nsenter is missing.
func TestPodsWithUsersOfTheirOwn(t *testing.T) {
	t.Parallel()
	without, err := iptables.New(iptables.Options{Nsenter: []string{"no-such-nsenter"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		nft, setting string
		check        func(context.Context) error
		want         bool
	}{
		{"?", pluginconf.Auto, without.CheckNsenter, false},
		{"?", pluginconf.NFTables, without.CheckNsenter, false},
		{"?", pluginconf.IPTables, without.CheckNsenter, true},
		{"redirect", pluginconf.Auto, without.CheckNsenter, true},
		{"tproxy", pluginconf.Auto, without.CheckNsenter, true},
		{"?", pluginconf.IPTables, nil, false},
		{"tproxy", pluginconf.Auto, nil, false},
	} {
		var log bytes.Buffer
		from, _ := candidates(t, test.nft)
		chooser := dataplane.New(dataplane.Options{
			Log: slog.New(slog.NewTextHandler(&log, nil)), Candidates: from, CheckNsenter: test.check,
		})
		chooser.Choose(t.Context(), test.setting)
		warned := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "hostUsers: false") &&
			strings.Contains(log.String(), "install util-linux")
		if warned != test.want {
			t.Errorf("%s without %s: got log %s", test.setting, test.nft, &log)
		}
	}
}

func TestWhatCannotBeFoundOutIsSaid(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]dataplane.Choice{
		"auto": {Setting: "auto"}, "nftables": {Setting: "nftables"}, "iptables": {Setting: "iptables", IPTables: true},
	} {
		var log bytes.Buffer
		chooser := dataplane.New(dataplane.Options{
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
			Scratch: func() (*interception.Netns, error) { return nil, errors.New("not permitted") },
		})
		if got := chooser.Choose(t.Context(), setting); got != want || !strings.Contains(log.String(), "not permitted") ||
			strings.Contains(log.String(), "util-linux") != want.IPTables {
			t.Errorf("%s: got %+v, log %s", setting, got, log.String())
		}
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
	got := dataplane.New(dataplane.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Candidates: from}).Choose(t.Context(), "auto")
	for _, word := range []string{"level=INFO", "is not known, and shows with the first pod", "CAP_NET_ADMIN"} {
		if got != (dataplane.Choice{Setting: "auto"}) || !strings.Contains(log.String(), word) {
			t.Errorf("got %+v and log %s, want %q", got, &log, word)
		}
	}
}
