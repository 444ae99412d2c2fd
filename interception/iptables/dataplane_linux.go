// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/route"
)

func newDataplane(d *Dataplane) (*Dataplane, error) {
	if d.options.Runner == nil {
		d.options.Runner = runner{}
	}
	return d, nil
}

func (d *Dataplane) apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	return d.alone(ctx, ns, p, (*application).apply)
}

func (d *Dataplane) remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.alone(ctx, ns, &interception.Plan{Owner: owner}, (*application).remove)
}

func (d *Dataplane) observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (state interception.State, err error) {
	err = d.alone(ctx, ns, &interception.Plan{Owner: owner}, func(a *application, ctx context.Context) (err error) {
		state, err = a.observe(ctx)
		return err
	})
	return state, err
}

// alone holds the namespace's lock while it works.
func (d *Dataplane) alone(
	ctx context.Context, ns *interception.Netns, p *interception.Plan, work func(*application, context.Context) error,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, release, err := namespace.Lock(ctx, ns.File())
	if err != nil {
		return err
	}
	defer release()
	routes, err := route.Open(ns.File())
	if err != nil {
		return err
	}
	defer routes.Close()
	tools, err := openTools(d.options, ns.File())
	if err != nil {
		return err
	}
	defer tools.close()
	return work(&application{
		Dataplane: d, ns: ns, plan: p, prefix: prefix(p.Owner), owner: d.protocols.Owner(p.Owner), routes: routes, tools: tools,
	}, ctx)
}

func (d *Dataplane) remembered(ctx context.Context, ns *interception.Netns, owner interception.Owner) (lines []string, found bool, err error) {
	err = d.withRules(ctx, ns, owner, func(a *application) error {
		lines, found = a.s.record.Lines(), true
		return nil
	})
	return lines, found, err
}

func (d *Dataplane) removeRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.withRules(ctx, ns, owner, func(a *application) error {
		if err := a.strangers(); err != nil {
			return err
		}
		return a.replace(ctx, a.nothing())
	})
}

// withRules calls work if the owner has rules or chains.
func (d *Dataplane) withRules(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, work func(*application) error,
) error {
	tools, err := openTools(d.options, ns.File())
	if err != nil {
		return err
	}
	defer tools.close()
	a := &application{
		Dataplane: d, ns: ns, plan: &interception.Plan{Owner: owner}, prefix: prefix(owner), owner: d.protocols.Owner(owner), tools: tools,
	}
	if err := a.look(ctx); err != nil {
		return err
	}
	if a.s.isEmpty() {
		return nil
	}
	return work(a)
}
