// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

func newDataplane() (*Dataplane, error) { return &Dataplane{}, nil }

func (d *Dataplane) apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	socket, err := open(ctx, ns)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	err = newTransaction(p.Owner).create(p).commit(socket)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return newTransaction(p.Owner).replace(p).commit(socket)
}

func (d *Dataplane) remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	socket, err := open(ctx, ns)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	err = newTransaction(owner).delete().commit(socket)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// open opens a socket in ns unless the context has ended.
func open(ctx context.Context, ns *interception.Netns) (*nfnetlink.Socket, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	socket, err := nfnetlink.Open(ns.File())
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, unsupported("netfilter's netlink (module nfnetlink, CONFIG_NETFILTER_NETLINK)", err)
	}
	return socket, err
}
