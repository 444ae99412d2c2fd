// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// marks are the beginnings of names by which the rules of well-known programs are told, those of tables with their family. The
// first that fits counts. A name proves nothing, so what follows from it is only said to look so.
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

// looksLike says whose a chain looks like; "" where nothing tells.
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

// chainsOfOthers are those chains of others that can change an outcome.
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
	for _, c := range state.Foreign { // of which a comparison with no plan at all has none
		if c.Hook != "" && !doesNothing(c) {
			add(fmt.Sprintf("%s/%s (hook %s, priority %d)", c.Table, c.Name, c.Hook, c.Priority))
		}
	}
	return chains
}

// doesNothing reports whether a chain is as empty as those of iptables are once somebody has listed them.
func doesNothing(c interception.ForeignChain) bool {
	return len(c.Rules) == 0 && c.Policy != (interception.Drop{})
}

// othersOnly says what stands in a namespace that has no rules of the owner, but those of others; "" for every other state. Chains
// of a hook that have no rules are there wherever somebody has listed them, and are left out.
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
