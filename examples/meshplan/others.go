// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// chainsOfOthers returns other programs' chains that can change an outcome.
func chainsOfOthers(state interception.State) []string {
	var chains []string
	add := func(chain string) {
		if !slices.Contains(chains, chain) {
			chains = append(chains, chain)
		}
	}
	for _, drift := range interception.Diff(state.Plan(), state) {
		if drift.Kind == interception.DriftForeign {
			add(drift.At)
		}
	}
	if slices.ContainsFunc(state.Objects, isTable) {
		return chains
	}
	for _, c := range state.Foreign { // a comparison without any plan has none
		if c.Hook != "" && !doesNothing(c) {
			add(fmt.Sprintf("%s/%s (hook %s, priority %d)", c.Table, c.Name, c.Hook, c.Priority))
		}
	}
	return chains
}

// doesNothing reports whether a chain is as empty as the chains that iptables makes when it lists
// rules.
func doesNothing(c interception.ForeignChain) bool {
	return len(c.Rules) == 0 && c.Policy != (interception.Drop{})
}

// othersOnly describes a namespace that has rules of other programs but none of the owner; it
// returns "" for every other state. It skips a hook's empty chains, since listing rules with
// iptables creates them.
func othersOnly(state interception.State) string {
	if slices.ContainsFunc(state.Objects, isTable) || len(state.Foreign) == 0 {
		return ""
	}
	var tables []string
	chains := map[string][]string{}
	for _, c := range state.Foreign {
		if doesNothing(c) {
			continue
		}
		if !slices.Contains(tables, c.Table) {
			tables = append(tables, c.Table)
		}
		chains[c.Table] = append(chains[c.Table], c.Name)
	}
	if len(tables) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "there are no rules of %s, but there are others:", state.Owner)
	for _, table := range tables {
		fmt.Fprintf(&b, "\n  table %s: chains %s", table, strings.Join(chains[table], ", "))
	}
	b.WriteString("\nIf another owner's plan is meant, name it with --owner; nft list ruleset and iptables-save print the rules.")
	return b.String()
}
