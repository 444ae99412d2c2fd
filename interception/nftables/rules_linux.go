// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/backend"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

// ownedRules are an owner's table in a namespace, at a generation of all rules there. They
// implement [backend.Rules].
type ownedRules struct {
	*Dataplane
	kernel kernel.Namespace
	owner  interception.Owner
	socket *nfnetlink.Socket // nil before Look

	generation uint32
	table      bool
	handle     uint64 // of the table: unique to each; 0 when it is unknown
	record     route.Record
	missing    error // set if the kernel has no nf_tables; the owner then has no table
}

func (r *ownedRules) close() {
	if r.socket != nil {
		_ = r.socket.Close()
	}
}

// Look implements [backend.Rules].
func (r *ownedRules) Look(context.Context) (backend.Standing, error) {
	tables, err := r.look()
	if errors.Is(err, interception.ErrUnsupported) {
		r.missing = err
		return backend.Standing{Blocked: err}, nil
	}
	return backend.Standing{Found: r.table, Record: r.record, Shared: r.sharedProtocol(tables)}, err
}

// look returns the handles of all tables.
func (r *ownedRules) look() (tables map[string]uint64, err error) {
	if r.socket == nil {
		if r.socket, err = dial(r.kernel); err != nil {
			return nil, err
		}
	}
	if r.generation, err = r.socket.Generation(); err != nil {
		return nil, withoutSubsystem(err)
	}
	if tables, err = dumpTables(r.socket); err != nil {
		return nil, err
	}
	r.record = route.Record{}
	if r.handle, r.table = tables[string(r.owner)]; r.table {
		r.record, err = readLedger(r.socket, string(r.owner))
	}
	return tables, err
}

// sharedProtocol returns an error if another owner with the same protocol number has a table.
func (r *ownedRules) sharedProtocol(tables map[string]uint64) error {
	own := r.backend.Protocols.Owner(r.owner).Protocol
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		other := interception.Owner(name)
		if other != r.owner && other.Validate() == nil && r.backend.Protocols.Owner(other).Protocol == own {
			return fmt.Errorf("table inet %s is there, and its owner has the same protocol number %d as %s: set one of them in Options.Protocols",
				other, own, r.owner)
		}
	}
	return nil
}

// Write implements [backend.Rules]. A fresh namespace takes the cheaper transaction that only adds.
func (r *ownedRules) Write(ctx context.Context, p *interception.Plan, record route.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(p.Objects) == 0 && record.IsEmpty() {
		return r.delete()
	}
	if holds, err := r.holds(p, record); holds || err != nil {
		return err
	}
	t := r.transaction()
	t.record = record
	if r.table {
		var err error
		if t.members, err = liveMembers(r.socket, p); err != nil {
			return err
		}
		t.replace(p)
	} else {
		t.create(p)
	}
	old, err := r.knownHandle()
	if err != nil {
		return err
	}
	if err := r.send(t, record, func(now *ownedRules) bool { return now.table && now.handle != old }); err != nil {
		return err
	}
	r.handle = 0
	return nil
}

// knownHandle returns the handle of the table, and asks for it if the table was made since Look. It
// is 0 only without a table.
func (r *ownedRules) knownHandle() (uint64, error) {
	if r.table && r.handle == 0 {
		tables, err := dumpTables(r.socket)
		if err != nil {
			return 0, err
		}
		r.handle = tables[string(r.owner)]
	}
	return r.handle, nil
}

func (r *ownedRules) delete() error {
	if !r.table {
		return nil
	}
	err := r.send(r.transaction().delete(), route.Record{}, func(now *ownedRules) bool { return !now.table })
	r.table = err != nil
	return err
}

// Remember implements [backend.Rules].
func (r *ownedRules) Remember(_ context.Context, record route.Record) error {
	t := r.transaction()
	t.record = record
	return r.send(t.rewriteLedger(!r.record.IsEmpty()), record, func(now *ownedRules) bool { return now.table && now.record.Equal(record) })
}

func (r *ownedRules) transaction() *transaction {
	return newTransaction(r.owner).onGeneration(r.generation)
}

// send commits a transaction, after which the table has the record. When the answer gets lost, it
// checks whether the kernel has done what the transaction is for: the lock keeps other callers from
// doing the same meanwhile.
func (r *ownedRules) send(t *transaction, record route.Record, done func(now *ownedRules) bool) error {
	err := t.commit(r.socket)
	switch {
	case err == nil:
		r.generation = max(r.generation+1, 1) // the kernel skips 0
	case errors.Is(err, nfnetlink.ErrNoAnswer):
		now := *r
		_, failed := now.look()
		if failed != nil || now.generation == r.generation || !done(&now) {
			return errors.Join(err, failed)
		}
		r.generation = now.generation
	default:
		return err
	}
	r.table, r.record = true, record
	return nil
}
