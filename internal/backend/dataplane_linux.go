// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/route"
)

// apply tries the cheapest way first: only to add, where the owner has nothing yet.
func (d *Dataplane) apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	if d.Create != nil && route.OnlyRules(p) {
		created, err := d.Create(ctx, ns, p)
		if err != nil {
			return err
		}
		if created {
			// The predecessors are asked only now that the pod is captured in any case.
			old, err := inherit(ctx, d.Predecessors, ns, p.Owner)
			if err == nil && old.from == nil {
				return nil
			}
		}
	}
	return d.locked(ctx, ns, p, (*application).apply)
}

func (d *Dataplane) remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.locked(ctx, ns, &interception.Plan{Owner: owner}, (*application).remove)
}

func (d *Dataplane) claim(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.locked(ctx, ns, &interception.Plan{Owner: owner}, (*application).claim)
}

func (d *Dataplane) observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (state interception.State, err error) {
	err = d.locked(ctx, ns, &interception.Plan{Owner: owner}, func(a *application, ctx context.Context) (err error) {
		state, err = a.observe(ctx)
		return err
	})
	return state, err
}

// Remembered implements [Predecessor].
func (h Heritage) Remembered(ctx context.Context, ns *interception.Netns, owner interception.Owner) (lines []string, found bool, err error) {
	a := &application{Dataplane: h.of, ns: ns, plan: &interception.Plan{Owner: owner}}
	err = h.of.repeated(ctx, a, func(_ *application, ctx context.Context) error {
		standing, err := a.rules.Look(ctx)
		lines, found = standing.Record.Lines(), standing.Found
		return err
	})
	return lines, found, err
}

// Members implements [Predecessor].
func (h Heritage) Members(ctx context.Context, ns *interception.Netns, owner interception.Owner) (Members, error) {
	var state interception.State
	a := &application{Dataplane: h.of, ns: ns, plan: &interception.Plan{Owner: owner}}
	err := h.of.repeated(ctx, a, func(_ *application, ctx context.Context) error {
		state = interception.State{Owner: owner}
		if _, err := a.rules.Look(ctx); err != nil {
			return err
		}
		return a.rules.Observe(ctx, &state)
	})
	return state.Owners, err
}

// RemoveRules implements [Predecessor].
func (h Heritage) RemoveRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return h.of.repeated(ctx, &application{Dataplane: h.of, ns: ns, plan: &interception.Plan{Owner: owner}}, (*application).removeRules)
}

// locked holds the namespace's lock, and opens what precedes the rules.
func (d *Dataplane) locked(
	ctx context.Context, ns *interception.Netns, p *interception.Plan, attempt func(*application, context.Context) error,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, release, err := namespace.Lock(ctx, ns.File())
	if err != nil {
		return err
	}
	defer release()
	routes, err := route.Dial(d.Kernel(ns.File()), d.others(ns)...)
	if err != nil {
		return err
	}
	defer routes.Close()
	return d.repeated(ctx, &application{Dataplane: d, ns: ns, plan: p, routes: routes}, attempt)
}

// others returns the namespaces that plans for ns can refer to. One that is closed is left out: a
// plan that needs it is refused.
func (d *Dataplane) others(ns *interception.Netns) []route.Other {
	var others []route.Other
	for label, other := range ns.Labelled() {
		if other.Check() == nil && other.File() != nil {
			others = append(others, route.Other{Label: label, File: other.File(), Namespace: d.Kernel(other.File())})
		}
	}
	return others
}
