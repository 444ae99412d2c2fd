// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

func newDataplane(o Options) (*Dataplane, error) {
	return &Dataplane{protocols: o.Protocols, open: kernel.Of, foreign: o.Foreign, predecessor: o.Predecessor}, nil
}

// protocol is the number that an owner's routes, policy rules and addresses carry.
func (d *Dataplane) protocol(owner interception.Owner) uint8 {
	if protocol, ok := d.protocols[owner]; ok {
		return protocol
	}
	return route.Protocol(owner)
}

// apply tries the cheapest first: a plan of sets and tables alone, where the owner has nothing yet. It looks before: a transaction that
// the kernel refuses waits as long as one that deletes.
func (d *Dataplane) apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	socket, err := d.dial(ctx, ns)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	if onlyRules(p) && !hasTable(socket, p.Owner) {
		err := newTransaction(p.Owner).create(p).commit(socket)
		if err == nil {
			// What another dataplane has is looked for behind: now somebody captures, whatever the answer is.
			old, err := d.ask(ctx, ns, p.Owner)
			if err == nil && !old.found {
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

// alone works on a namespace that holds something already, or shall hold more than rules, while nobody else does.
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
	owner := route.Owner{Name: p.Owner, Protocol: d.protocol(p.Owner)}
	a := &application{Dataplane: d, ns: ns, plan: p, owner: owner, rules: rules, routes: routes}
	return a.repeated(ctx, work)
}

// onlyRules reports whether all of a plan is in nf_tables.
func onlyRules(p *interception.Plan) bool {
	for _, object := range p.Objects {
		switch object.(type) {
		case interception.Set, interception.Table:
		default:
			return false
		}
	}
	return true
}

// dial opens a socket in ns unless the context has ended.
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
