// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

// transaction encodes a plan as a batch of nf_tables messages (linux/netfilter/nf_tables.h) and
// remembers which part of the plan each message is about.
type transaction struct {
	batch *nfnetlink.Batch
	table string
	parts []part // by the index of the message
	part  part   // of the following messages
	added map[interception.SetName]addedSet
	sets  uint32       // the id of the last set
	room  []expression // each rule reuses it

	// What existed before and stays: the members of live sets, and the table's record.
	members map[interception.SetName][]element
	record  route.Record
	err     error // the first part that could not be encoded
}

// part is a part of a plan, with the kernel features that it needs.
type part struct {
	at, why, needs string
}

func newTransaction(owner interception.Owner) *transaction {
	return &transaction{
		batch: nfnetlink.NewBatch(unix.NFNL_SUBSYS_NFTABLES),
		table: string(owner),
		part:  part{at: "table inet " + string(owner), needs: inetTables},
		added: map[interception.SetName]addedSet{},
	}
}

// create adds the plan, and fails when the table exists already: NLM_F_EXCL on the table suffices,
// since everything of the owner is in its table.
func (t *transaction) create(p *interception.Plan) *transaction {
	t.addTable(unix.NLM_F_EXCL)
	t.add(p)
	return t
}

// replace deletes the table and adds the plan. It first adds the table, so that it can be deleted.
func (t *transaction) replace(p *interception.Plan) *transaction {
	t.addTable(0)
	t.delete()
	t.addTable(0)
	t.add(p)
	return t
}

// onGeneration has the kernel refuse the transaction if rules have changed since. Call it first.
func (t *transaction) onGeneration(generation uint32) *transaction {
	t.batch.OnGeneration(generation)
	return t
}

func (t *transaction) delete() *transaction {
	t.message(unix.NFT_MSG_DELTABLE, 0)
	t.batch.Text(unix.NFTA_TABLE_NAME, t.table)
	return t
}

func (t *transaction) addTable(flags uint16) {
	t.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|flags)
	t.batch.Text(unix.NFTA_TABLE_NAME, t.table)
}

// add adds the plan's sets and chains and then, when all that they refer to exists, the rules.
func (t *transaction) add(p *interception.Plan) {
	for set := range p.Sets() {
		t.added[set.Name] = t.addNamedSet(set)
	}
	t.addLedger()
	chains := lower.Chains(p)
	for _, chain := range chains {
		t.addChain(chain)
	}
	for _, chain := range chains {
		for _, rule := range chain.Rules {
			t.part = part{string(rule.ID), rule.Why, ruleNeeds(rule)}
			t.addRule(chain.Name, rule)
		}
	}
}

func (t *transaction) addChain(c lower.Chain) {
	t.part = part{c.Table.String(), "chain " + c.Name, chainNeeds(c)}
	t.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	t.batch.Text(unix.NFTA_CHAIN_TABLE, t.table)
	t.batch.Text(unix.NFTA_CHAIN_NAME, c.Name)
	if c.Base == nil {
		return
	}
	t.batch.Nest(unix.NFTA_CHAIN_HOOK, func() {
		t.batch.Uint32(unix.NFTA_HOOK_HOOKNUM, hookNumber(c.Base.Hook))
		t.batch.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.Base.Priority))
	})
	t.batch.Uint32(unix.NFTA_CHAIN_POLICY, verdictAccept)
	t.batch.Text(unix.NFTA_CHAIN_TYPE, c.Base.Type)
}

func (t *transaction) addRule(chain string, r lower.Rule) {
	expressions := t.expressions(r)
	t.message(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	t.batch.Text(unix.NFTA_RULE_TABLE, t.table)
	t.batch.Text(unix.NFTA_RULE_CHAIN, chain)
	t.batch.Nest(unix.NFTA_RULE_EXPRESSIONS, func() {
		for _, e := range expressions {
			t.batch.Nest(unix.NFTA_LIST_ELEM, func() {
				t.batch.Text(unix.NFTA_EXPR_NAME, e.name)
				t.batch.Bytes(unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, e.data)
			})
		}
	})
	t.batch.Bytes(unix.NFTA_RULE_USERDATA, appendComment(nil, ruleComment, r.Comment))
}

func (t *transaction) message(kind uint8, flags uint16) {
	t.batch.Message(kind, flags, unix.NFPROTO_INET)
	t.parts = append(t.parts, t.part)
}

// fail keeps the transaction from being sent, because of the current part.
func (t *transaction) fail(err error) {
	if t.err == nil {
		t.err = fmt.Errorf("encode %s (%s): %w", t.part.at, t.part.why, err)
	}
}

// commit sends the transaction. A refusal becomes an error about the part of the plan.
func (t *transaction) commit(socket *nfnetlink.Socket) error {
	if t.err != nil {
		return t.err
	}
	err := socket.Commit(t.batch)
	var refusal *nfnetlink.RefusedError
	if !errors.As(err, &refusal) {
		return err
	}
	if refusal.Message < 0 || refusal.Message >= len(t.parts) {
		return batchError(refusal)
	}
	return t.parts[refusal.Message].error(refusal)
}

// hookNumber returns the hook in the kernel's numbering (linux/netfilter.h, enum nf_inet_hooks),
// which is the order of [interception.Hooks]. A hook that no valid plan has becomes the highest
// number, which the kernel refuses.
func hookNumber(hook interception.Hook) uint32 {
	return uint32(slices.Index(interception.Hooks(), hook))
}

// ledgerSet is the set in the owner's table whose elements' comments record what has to be
// remembered of the namespace: it lives exactly as long as the namespace, is written in the
// transaction that it belongs to, and "nft list ruleset" shows it. No set of a plan has that name.
const ledgerSet = "ledger"

// maxLedgerLine is what a set element's comment holds: 256 bytes less the header and the NUL.
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

// rewriteLedger replaces the ledger, adds a missing table, and leaves the rest as it is.
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

// readLedger reads what addLedger wrote. Without a ledger the record is empty.
func readLedger(socket *nfnetlink.Socket, table string) (route.Record, error) {
	elements, err := dumpElements(socket, unix.NFPROTO_INET, table, ledgerSet)
	if errors.Is(err, unix.ENOENT) {
		return route.Record{}, nil
	}
	if err != nil {
		return route.Record{}, fmt.Errorf("read set %s: %w", ledgerSet, err)
	}
	var lines []string
	for _, e := range elements {
		lines = append(lines, commentOf(parseAttributes(e).take(unix.NFTA_SET_ELEM_USERDATA), elementComment))
	}
	record, err := route.ParseRecord(lines)
	if err != nil {
		return route.Record{}, fmt.Errorf(
			"set %s in table inet %s: %w: another program has changed it: delete the set, and check what it says by hand",
			ledgerSet, table, err)
	}
	return record, nil
}
