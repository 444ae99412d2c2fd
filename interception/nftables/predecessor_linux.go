// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
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

// legacy is what the predecessor has.
type legacy struct {
	found  bool
	record route.Record
}

// ask asks the predecessor what it has of the owner, if there is one.
func (d *Dataplane) ask(ctx context.Context, ns *interception.Netns, owner interception.Owner) (legacy, error) {
	if d.predecessor == nil {
		return legacy{}, nil
	}
	lines, found, err := d.predecessor.Remembered(ctx, ns, owner)
	if err != nil || !found {
		return legacy{}, wrapped("look for rules of another dataplane", err)
	}
	record, err := route.ParseRecord(lines)
	return legacy{true, record}, wrapped("rules of another dataplane", err)
}

// relieve takes away the rules that the predecessor has, now that others stand.
func (a *application) relieve(ctx context.Context, l legacy) error {
	if !l.found {
		return nil
	}
	return unfinished(wrapped("rules of another dataplane are left",
		a.predecessor.RemoveRules(context.WithoutCancel(ctx), a.ns, a.plan.Owner)))
}

func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
