// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

// dataplanes are what the agent writes rules with, and what it finds Istio's rules with.
type dataplanes struct {
	chosen  *choice.Dataplane
	foreign []agent.ForeignDataplane
}

// chooseDataplanes tries the plans of a pod and of the host on this machine. The candidates that
// are not chosen come after the chosen one: what they have written before is found and removed.
func chooseDataplanes(ctx context.Context, settings ambientconf.Config, log *slog.Logger) (dataplanes, error) {
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if err != nil {
		return dataplanes{}, err
	}
	if settings.Dataplane != "" {
		i := slices.IndexFunc(candidates, func(c choice.Candidate) bool { return c.Name == settings.Dataplane })
		if i < 0 {
			return dataplanes{}, fmt.Errorf("there is no dataplane %q: set %s, %s, or none to have one chosen",
				settings.Dataplane, choice.NFTables, choice.IPTables)
		}
		candidates[0], candidates[i] = candidates[i], candidates[0]
	}
	plan, err := settings.WholePlan()
	if err != nil {
		return dataplanes{}, err
	}
	tried := candidates
	if settings.Dataplane != "" {
		tried = candidates[:1]
	}
	found, err := choice.Choose(ctx, plan, choice.Options{}, tried...)
	if err != nil {
		return dataplanes{}, fmt.Errorf("find a dataplane for the rules of ambient mode: %w", err)
	}
	log.Info("the rules are written by a dataplane", "dataplane", found.String())
	candidates = slices.DeleteFunc(candidates, func(c choice.Candidate) bool { return c.Name == found.Name })
	d := dataplanes{}
	if d.chosen, err = choice.New(append([]choice.Candidate{found.Candidate}, candidates...)...); err != nil {
		return dataplanes{}, err
	}
	nft, err := nftables.New(nftables.Options{Foreign: true})
	if err != nil {
		return dataplanes{}, err
	}
	ipt, err := iptables.New(iptables.Options{Foreign: true})
	d.foreign = []agent.ForeignDataplane{nft, &iptablesReader{Dataplane: ipt, log: log}}
	return d, err
}

// iptablesReader reads what other programs have written with iptables. In an image without
// iptables the agents do without it, and it says so once: what iptables-nft has written is read by
// the other dataplane, too.
type iptablesReader struct {
	*iptables.Dataplane

	log  *slog.Logger
	once sync.Once
}

// Observe implements [agent.ForeignDataplane].
func (r *iptablesReader) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	state, err := r.Dataplane.Observe(ctx, ns, owner)
	if errors.Is(err, interception.ErrUnsupported) {
		r.once.Do(func() {
			r.log.Warn("rules that Istio's own agent has written with iptables-legacy are not found: install iptables where this runs", "error", err)
		})
	}
	return state, err
}
