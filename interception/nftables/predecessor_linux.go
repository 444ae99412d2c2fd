// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

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

// withTable works on the owner's table, if there is one. A kernel without nf_tables has none.
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
