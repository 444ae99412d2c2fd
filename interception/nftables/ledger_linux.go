// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

// ledgerSet is the set in the owner's table whose elements' comments are what has to be remembered of the namespace: it lives as long as
// that and no longer, is written in the transaction that it belongs to, and "nft list ruleset" shows it. No set of a plan has that name.
const ledgerSet = "ledger"

// maxLedgerLine is what an element's comment holds: 256 bytes of user data less the header and the NUL.
const maxLedgerLine = math.MaxUint8 - 1

// addLedger adds the ledger when there is anything to remember.
func (t *transaction) addLedger() {
	if t.record.IsEmpty() {
		return
	}
	t.part = part{"set " + ledgerSet, "values from before the plan", inetTables}
	var elements []element
	for i, line := range slices.Sorted(slices.Values(t.record.Lines())) { // a set has no order
		if len(line) > maxLedgerLine {
			t.fail(fmt.Errorf("%q has %d bytes and can have %d", line, len(line), maxLedgerLine))
			return
		}
		elements = append(elements, element{value: binary.NativeEndian.AppendUint32(nil, uint32(i)), comment: line})
	}
	userdata := appendComment(numberData(setKeyByteOrder, hostOrder), setComment, "values from before the plan")
	t.addElements(ledgerSet, t.addSet(ledgerSet, 0, markKey(), 0, userdata), elements)
}

// rewriteLedger replaces the ledger, and leaves the rest of the table as it is. The table is added when it is not there.
func (t *transaction) rewriteLedger(had bool) *transaction {
	t.addTable(0)
	if had {
		t.message(unix.NFT_MSG_DELSET, 0)
		t.batch.Text(unix.NFTA_SET_TABLE, t.table)
		t.batch.Text(unix.NFTA_SET_NAME, ledgerSet)
	}
	t.addLedger()
	return t
}

// readLedger reads what addLedger wrote; it is empty when there is none.
func readLedger(socket *nfnetlink.Socket, table string) (route.Record, error) {
	elements, err := dumpElements(socket, table, ledgerSet)
	if errors.Is(err, unix.ENOENT) {
		return route.Record{}, nil
	}
	if err != nil {
		return route.Record{}, fmt.Errorf("read set %s: %w", ledgerSet, err)
	}
	var lines []string
	for _, e := range elements {
		lines = append(lines, e.comment)
	}
	record, err := route.ParseRecord(lines)
	if err != nil {
		return route.Record{}, fmt.Errorf("set %s in table inet %s: %w: somebody has changed it: delete the set, and check what it says by hand",
			ledgerSet, table, err)
	}
	return record, nil
}
