// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/backend"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

func newDataplane(d *Dataplane) (*Dataplane, error) {
	d.backend.Kernel, d.backend.Open, d.backend.Create, d.backend.Supports = kernel.Of, d.open, d.create, d.Supports
	d.backend.Edit = d.updateSet // it needs no lock
	d.heritage = d.backend.Heritage(backend.NFTables)
	return d, nil
}

func (d *Dataplane) open(ns *interception.Netns, owner interception.Owner) (backend.Rules, func(), error) {
	r := &ownedRules{Dataplane: d, kernel: d.backend.Kernel(ns.File()), owner: owner}
	return r, r.close, nil
}

// create looks for the table first: a refused transaction takes as long as one that deletes.
func (d *Dataplane) create(ctx context.Context, ns *interception.Netns, p *interception.Plan) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	socket, err := dial(d.backend.Kernel(ns.File()))
	if err != nil {
		return false, err
	}
	defer func() { _ = socket.Close() }()
	if hasTable(socket, p.Owner) {
		return false, nil
	}
	err = newTransaction(p.Owner).create(p).commit(socket)
	if errors.Is(err, unix.EEXIST) || errors.Is(err, nfnetlink.ErrNoAnswer) {
		return false, nil
	}
	return err == nil, err
}

func (d *Dataplane) updateSet(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit,
) error {
	s := setEditing{owner: owner, set: set, edit: edit}
	return s.update(ctx, d.backend.Kernel(ns.File()))
}

func dial(in kernel.Namespace) (*nfnetlink.Socket, error) {
	socket, err := nfnetlink.Dial(in)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, unsupported("netfilter's netlink (module nfnetlink, CONFIG_NETFILTER_NETLINK)", err)
	}
	return socket, err
}
