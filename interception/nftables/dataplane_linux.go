// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/handover"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

func newDataplane(d *Dataplane) (*Dataplane, error) {
	d.open = kernel.Of
	return d, nil
}

// apply tries the cheapest way first: only to add, where the owner has nothing yet. It checks for
// the table before, as a refused transaction waits as long as one that deletes.
func (d *Dataplane) apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	socket, err := d.dial(ctx, ns)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	if route.OnlyRules(p) && !hasTable(socket, p.Owner) {
		err := newTransaction(p.Owner).create(p).commit(socket)
		if err == nil {
			// The predecessor is asked only now that the pod is captured in any case.
			old, err := handover.Ask(ctx, d.predecessor, ns, p.Owner)
			if err == nil && !old.Found {
				return nil
			}
		} else if !errors.Is(err, unix.EEXIST) && !errors.Is(err, nfnetlink.ErrNoAnswer) {
			return err
		}
	}
	return d.alone(ctx, ns, socket, p, (*application).apply)
}

func (d *Dataplane) remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	socket, err := d.dial(ctx, ns)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	return d.alone(ctx, ns, socket, &interception.Plan{Owner: owner}, (*application).remove)
}

// alone holds the namespace's lock for work on existing rules, or on more than rules.
func (d *Dataplane) alone(
	ctx context.Context, ns *interception.Netns, rules *nfnetlink.Socket, p *interception.Plan,
	work func(*application, context.Context, *standing) error,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, release, err := namespace.Lock(ctx, ns.File())
	if err != nil {
		return err
	}
	defer release()
	routes, err := route.Dial(d.open(ns.File()))
	if err != nil {
		return err
	}
	defer routes.Close()
	a := &application{Dataplane: d, ns: ns, plan: p, owner: d.protocols.Owner(p.Owner), rules: rules, routes: routes}
	return a.repeated(ctx, work)
}

func (d *Dataplane) dial(ctx context.Context, ns *interception.Netns) (*nfnetlink.Socket, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	socket, err := nfnetlink.Dial(d.open(ns.File()))
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, unsupported("netfilter's netlink (module nfnetlink, CONFIG_NETFILTER_NETLINK)", err)
	}
	return socket, err
}

func (d *Dataplane) remembered(ctx context.Context, ns *interception.Netns, owner interception.Owner) (lines []string, found bool, err error) {
	err = d.withTable(ctx, ns, owner, func(socket *nfnetlink.Socket) error {
		record, err := readLedger(socket, string(owner))
		lines, found = record.Lines(), true
		return err
	})
	return lines, found, err
}

func (d *Dataplane) removeRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.withTable(ctx, ns, owner, func(socket *nfnetlink.Socket) error {
		if err := newTransaction(owner).delete().commit(socket); !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	})
}

// withTable calls work if the owner has a table. A kernel without nf_tables has no tables.
func (d *Dataplane) withTable(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, work func(*nfnetlink.Socket) error,
) error {
	socket, err := d.dial(ctx, ns)
	if errors.Is(err, interception.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	tables, err := dumpTables(socket)
	if errors.Is(withoutSubsystem(err), interception.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, found := tables[string(owner)]; !found {
		return nil
	}
	return work(socket)
}
