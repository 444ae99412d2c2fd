// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// NetworkPolicy is the part of a NetworkPolicy that the mesh depends on.
type NetworkPolicy struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Types   []string     `json:"policyTypes"`
		Ingress []PolicyRule `json:"ingress"`
		Egress  []PolicyRule `json:"egress"`
	} `json:"spec"`
}

// PolicyRule allows peers at ports. No peers stand for all, and no ports, too.
type PolicyRule struct {
	From  []Peer `json:"from"`
	To    []Peer `json:"to"`
	Ports []struct {
		Protocol string          `json:"protocol"`
		Port     json.RawMessage `json:"port"` // a number, a name, or missing for all
		EndPort  uint16          `json:"endPort"`
	} `json:"ports"`
}

// Peer is whom a rule allows. Only addresses matter here.
type Peer struct {
	Block *struct {
		CIDR netip.Prefix `json:"cidr"`
	} `json:"ipBlock"`
}

// ParsePolicies reads what "kubectl get networkpolicies -A -o json" prints.
func ParsePolicies(text []byte) ([]NetworkPolicy, error) {
	var list struct {
		Kind  string          `json:"kind"`
		Items []NetworkPolicy `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read NetworkPolicies: %w", err)
	}
	if list.Kind != "List" && list.Kind != "NetworkPolicyList" {
		return nil, errors.New(`read NetworkPolicies: this is no list: give what "kubectl get networkpolicies -A -o json" prints`)
	}
	return list.Items, nil
}

// policies returns the findings about NetworkPolicies. Policies add up: another one that selects
// the same pods may allow what one misses, so each finding names one to look at.
func policies(all []NetworkPolicy, n ambient.Numbers, cilium bool) (found []Finding) {
	for _, p := range all {
		name := p.Metadata.Namespace + "/" + p.Metadata.Name
		for direction, rules := range map[string][]PolicyRule{"ingress": p.Spec.Ingress, "egress": p.Spec.Egress} {
			if missesPort(rules, n.TunnelPort) {
				found = append(found, Finding{
					PolicyTunnel,
					fmt.Sprintf("NetworkPolicy %s allows ports in %s without %d, at which pods of the mesh reach each other", name, direction, n.TunnelPort),
					fmt.Sprintf("allow TCP port %d in the same rules, or in another policy for these pods", n.TunnelPort),
				})
			}
		}
		if cilium && p.concerns("Ingress") && !allowsProbes(p.Spec.Ingress, n.Probes) {
			found = append(found, Finding{
				PolicyProbes,
				fmt.Sprintf("NetworkPolicy %s does not allow ingress from %s, the address of probes, and Cilium enforces it", name, n.Probes[0]),
				"add a CiliumClusterwideNetworkPolicy that allows ingress from the addresses of probes (docs/operations.md)",
			})
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		if a.Seen < b.Seen {
			return -1
		}
		return 1
	})
	return found
}

// concerns reports whether a policy is about a direction. Without types it is about ingress.
func (p NetworkPolicy) concerns(direction string) bool {
	return slices.Contains(p.Spec.Types, direction) || len(p.Spec.Types) == 0 && direction == "Ingress"
}

// missesPort reports whether a rule names ports without this one, and no rule allows it for all.
func missesPort(rules []PolicyRule, port interception.Port) bool {
	toAll := slices.ContainsFunc(rules, func(r PolicyRule) bool { return len(r.From)+len(r.To) == 0 && r.allows(port) })
	return !toAll && slices.ContainsFunc(rules, func(r PolicyRule) bool { return !r.allows(port) })
}

// allows reports whether a rule allows a TCP port. Names of ports are those of the application.
func (r PolicyRule) allows(port interception.Port) bool {
	if len(r.Ports) == 0 {
		return true
	}
	for _, p := range r.Ports {
		var first uint16
		named := len(p.Port) > 0 && json.Unmarshal(p.Port, &first) != nil
		if named || p.Protocol != "" && p.Protocol != "TCP" {
			continue
		}
		if len(p.Port) == 0 || first <= uint16(port) && uint16(port) <= max(first, p.EndPort) {
			return true
		}
	}
	return false
}

// allowsProbes reports whether a rule allows the addresses of probes.
func allowsProbes(rules []PolicyRule, probes []netip.Addr) bool {
	return slices.ContainsFunc(rules, func(r PolicyRule) bool {
		return len(r.From) == 0 || slices.ContainsFunc(r.From, func(p Peer) bool {
			return p.Block != nil && slices.ContainsFunc(probes, p.Block.CIDR.Contains)
		})
	})
}
