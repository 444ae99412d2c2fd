// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// marks returns prefixes of names by which to recognise the rules of well-known programs; a table's
// name includes its family. The first match counts. A name proves nothing, so messages only state
// that the rules look like those of the program.
func marks() []struct{ beginning, whose string } {
	return []struct{ beginning, whose string }{
		{"ISTIO_", "Istio"},
		{"istio-", "Istio"},
		{"PROXY_INIT_", "Linkerd"},
		{"KUMA_", "Kuma"},
		{"CONSUL_", "Consul"},
		{"inet consul_tproxy", "Consul"},
		{"OSM_", "Open Service Mesh"},
		{"KUBE-", "kube-proxy or the kubelet"},
		{"ip kube-proxy", "kube-proxy"},
		{"ip6 kube-proxy", "kube-proxy"},
		{"CILIUM_", "Cilium"},
		{"cali-", "Calico"},
		{"FLANNEL-", "Flannel"},
		{"CNI-", "a CNI plugin such as portmap"},
		{"inet cni_", "a CNI plugin such as portmap"},
		{"DOCKER", "Docker"},
	}
}

// looksLike returns the program that a chain probably belongs to; "" if unknown.
func looksLike(c interception.ForeignChain) string {
	_, table, _ := strings.Cut(c.Table, " ")
	for _, mark := range marks() {
		for _, name := range []string{c.Name, c.Table, table} {
			if strings.HasPrefix(name, mark.beginning) {
				return mark.whose
			}
		}
	}
	return ""
}

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
	var tables, whose []string
	chains := map[string][]string{}
	for _, c := range state.Foreign {
		if doesNothing(c) {
			continue
		}
		if !slices.Contains(tables, c.Table) {
			tables = append(tables, c.Table)
		}
		chains[c.Table] = append(chains[c.Table], c.Name)
		if name := looksLike(c); name != "" && !slices.Contains(whose, name) {
			whose = append(whose, name)
		}
	}
	if len(tables) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "there are no rules of %s, but there are others:", state.Owner)
	for _, table := range tables {
		fmt.Fprintf(&b, "\n  table %s: chains %s", table, strings.Join(chains[table], ", "))
	}
	if len(whose) > 0 {
		fmt.Fprintf(&b, "\nThey look like those of %s.", strings.Join(whose, " and "))
	}
	b.WriteString("\nIf another owner's plan is meant, name it with --owner; nft list ruleset and iptables-save print the rules.")
	return b.String()
}
