// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/backend"
)

// Candidates returns nftables and iptables, in this order. Each removes the rules that the other
// left; Candidates sets the options' Predecessors for that. On systems other than Linux the error
// wraps [interception.ErrUnsupported].
func Candidates(n nftables.Options, i iptables.Options) ([]choice.Candidate, error) {
	return connect(all(n, i))
}

// maker makes the dataplane of a candidate.
type maker struct {
	name string
	make func(predecessors []interception.Dataplane) (backend.Successor, error)
}

// all returns the makers of all candidates, the preferred one first.
func all(n nftables.Options, i iptables.Options) []maker {
	return []maker{
		{choice.NFTables, func(others []interception.Dataplane) (backend.Successor, error) {
			options := n // the makers may run at the same time
			options.Predecessors = others
			return nftables.New(options)
		}},
		{choice.IPTables, func(others []interception.Dataplane) (backend.Successor, error) {
			options := i
			options.Predecessors = others
			return iptables.New(options)
		}},
	}
}

// connect makes each candidate with all others as its predecessors. So each is made twice: those
// that only precede others have no predecessors.
func connect(makers []maker) ([]choice.Candidate, error) {
	var alone []interception.Dataplane
	for _, m := range makers {
		d, err := m.make(nil)
		if err != nil {
			return nil, err
		}
		alone = append(alone, d)
	}
	var candidates []choice.Candidate
	for i, m := range makers {
		d, err := m.make(slices.Delete(slices.Clone(alone), i, i+1))
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, choice.Candidate{Name: m.name, Dataplane: d})
	}
	return candidates, nil
}
