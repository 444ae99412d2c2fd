// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"

	"github.com/meshcni/meshcni/interception"
)

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
		before := a.s.rules
		if err := a.commit(ctx, a.nothing()); err != nil {
			return errors.Join(err, a.restoreRules(ctx, before))
		}
		return nil
	})
}

// withRules works on what the owner has, if there is anything.
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
