// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// removeForeign begins again while other transactions come in between.
func (d *Dataplane) removeForeign(ctx context.Context, ns *interception.Netns, chains []interception.ForeignChain) error {
	socket, err := dial(d.backend.Kernel(ns.File()))
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	for {
		err := ctx.Err()
		if err == nil {
			err = removeTables(socket, chains)
		}
		if !errors.Is(err, unix.ERESTART) {
			return err
		}
	}
}

// removeTables removes the tables of these chains, at the generation at which they were compared.
func removeTables(socket *nfnetlink.Socket, chains []interception.ForeignChain) error {
	generation, err := socket.Generation()
	if err != nil {
		return withoutSubsystem(err)
	}
	there, err := readForeign(socket, "") // no owner: all tables
	if err != nil {
		return err
	}
	want, got := byTable(chains), byTable(there)
	t := newTransaction("").onGeneration(generation)
	for _, table := range slices.Sorted(maps.Keys(want)) {
		if !reflect.DeepEqual(want[table], got[table]) {
			return fmt.Errorf("table %s is gone, or has other chains or rules than before: look again", table)
		}
		family, name, _ := strings.Cut(table, " ")
		for number, word := range foreignFamilies() {
			if word == family {
				t.parts = append(t.parts, part{at: "table " + table})
				t.batch.Message(unix.NFT_MSG_DELTABLE, 0, number)
				t.batch.Text(unix.NFTA_TABLE_NAME, name)
			}
		}
	}
	if len(want) == 0 {
		return nil
	}
	return t.commit(socket)
}

func byTable(chains []interception.ForeignChain) map[string][]interception.ForeignChain {
	tables := map[string][]interception.ForeignChain{}
	for _, c := range chains {
		tables[c.Table] = append(tables[c.Table], c)
	}
	for _, all := range tables {
		slices.SortFunc(all, func(a, b interception.ForeignChain) int { return strings.Compare(a.Name, b.Name) })
	}
	return tables
}
