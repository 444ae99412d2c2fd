// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/route"
)

// ledgerName returns the name of the owner's chain in table filter of IPv4 whose comments record
// what has to be remembered of the namespace: it lives exactly as long as the namespace, and
// iptables-save shows it. No rule leads to it. A plan's chain names begin with a letter.
func ledgerName(prefix string) string { return prefix + "0-LEDGER" }

// maxLedgerLine is the capacity of a comment (XT_MAX_COMMENT_LEN, its NUL included).
const maxLedgerLine = 255

const (
	ledgerTable  = interception.Filter
	ledgerFamily = interception.IPv4
)

// withLedger returns the ruleset of IPv4 with its record replaced.
func (s ruleset) withLedger(prefix string, record route.Record) (ruleset, error) {
	t := s[ledgerTable]
	other := table{hooks: t.hooks, strangers: t.strangers}
	for _, c := range t.chains {
		if c.name != ledgerName(prefix) {
			other.chains = append(other.chains, c)
		}
	}
	if !record.IsEmpty() {
		ledger := chain{name: ledgerName(prefix)}
		for _, line := range record.Lines() {
			if len(line) > maxLedgerLine {
				return nil, fmt.Errorf("remember %q: it has %d bytes, and a comment can have %d", line, len(line), maxLedgerLine)
			}
			ledger.rules = append(ledger.rules, `-m comment --comment "`+line+`"`)
		}
		other.chains = append(other.chains, ledger)
	}
	return s.with(ledgerTable, other), nil
}

// readLedger parses what withLedger wrote, from rulesets of IPv4. The root user of the namespace
// may have changed it: another form is an error.
func readLedger(prefix string, sets ...ruleset) (route.Record, error) {
	name := ledgerName(prefix)
	var lines []string
	for _, s := range sets {
		c, _ := s[ledgerTable].chain(name)
		for _, rule := range c.rules {
			line, ok := strings.CutPrefix(rule, `-m comment --comment "`)
			line, closed := strings.CutSuffix(line, `"`)
			if !ok || !closed {
				return route.Record{}, ledgerError(name, fmt.Errorf("rule %q is not an entry", rule))
			}
			lines = append(lines, line)
		}
	}
	record, err := route.ParseRecord(lines)
	if err != nil {
		return route.Record{}, ledgerError(name, err)
	}
	return record, nil
}

func ledgerError(name string, err error) error {
	return fmt.Errorf("chain %s in table %s: %w: another program has changed it: delete the chain, and check what it says by hand",
		name, ledgerTable, err)
}
