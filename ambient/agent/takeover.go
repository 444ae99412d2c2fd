// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
)

// ForeignDataplane finds what other programs have in a pod or on the host, and removes it. Those of
// packages nftables and iptables do, with their Options.Foreign.
type ForeignDataplane interface {
	Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error)
	RemoveForeign(ctx context.Context, ns *interception.Netns, chains []interception.ForeignChain) error
}

// Claimer makes the routes and policy rules that serve a plan, and that another program has put
// there, the owner's. The dataplanes of packages nftables, iptables and choice do.
type Claimer interface {
	Claim(ctx context.Context, ns *interception.Netns, owner interception.Owner) error
}

// ErrUpstream means that a pod, or the host, has rules of Istio's own agent that some program has
// changed, so the agent leaves them beside its own.
var ErrUpstream = errors.New("rules of Istio's own agent are not as it writes them")

// observeOthers returns what a dataplane of TakeOver sees in a namespace: nothing where its
// programs are not installed, as in an image for nf_tables.
func (o *Options) observeOthers(ctx context.Context, d ForeignDataplane, in *interception.Netns) (interception.State, error) {
	state, err := d.Observe(ctx, in, o.Owner)
	if errors.Is(err, interception.ErrUnsupported) {
		return interception.State{}, nil
	}
	return state, err
}

// takeOver removes the rules of Istio's own agent from a pod in which the agent's are in place:
// until then both capture to the same ports, and afterwards the connections that the former have
// captured live on.
func (w *worker) takeOver(ctx context.Context) error {
	if w.alone {
		return nil
	}
	err := w.agent.options.takeOver(ctx, w.namespace, upstream.Recognise)
	w.alone = err == nil
	return err
}

// takeOver removes the rules of Istio's own agent from a namespace in which the agent's are in
// place. The routes and policy rules that both have alike become the agent's first, if its
// dataplane is a [Claimer]: if the agent ends in between, the next one finds the rules again.
func (o *Options) takeOver(
	ctx context.Context, in *interception.Netns, recognise func([]interception.ForeignChain, ambient.Numbers) ([]upstream.Recognised, error),
) error {
	var errs []error
	left := changed{}
	for _, d := range o.TakeOver {
		state, err := o.observeOthers(ctx, d, in)
		if err != nil {
			return fmt.Errorf("look for rules of Istio's own agent: %w", err)
		}
		found, err := recognise(state.Foreign, o.Numbers)
		if err != nil {
			return err
		}
		for _, rules := range found {
			if left.recognises(rules) {
				errs = append(errs, o.replace(ctx, in, d, rules.Chains))
			}
		}
	}
	return errors.Join(append(errs, left.err(in))...)
}

// changed has the differences of rules that no dataplane has recognised yet.
type changed map[upstream.Program][]string

// recognises reports whether rules are as Istio's own agent writes them.
func (c changed) recognises(rules upstream.Recognised) bool {
	if len(rules.Differences) == 0 {
		delete(c, rules.Program)
		return true
	}
	if known, seen := c[rules.Program]; !seen || len(rules.Differences) < len(known) {
		c[rules.Program] = rules.Differences // the fewest are those that the dataplane decodes best
	}
	return false
}

func (c changed) err(in *interception.Netns) error {
	var errs []error
	for _, program := range slices.Sorted(maps.Keys(c)) {
		errs = append(errs, fmt.Errorf("%w: by %s in %s: %s: remove them, or what has changed them",
			ErrUpstream, program, in, strings.Join(c[program], "; ")))
	}
	return errors.Join(errs...)
}

// replace claims what both have alike, and removes the former chains.
func (o *Options) replace(ctx context.Context, in *interception.Netns, former ForeignDataplane, chains []interception.ForeignChain) error {
	if claimer, is := o.Dataplane.(Claimer); is {
		if err := claimer.Claim(ctx, in, o.Owner); err != nil && !errors.Is(err, interception.ErrUnsupported) {
			return err
		}
	}
	return former.RemoveForeign(ctx, in, chains)
}
