// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// postrouting is the hook of the agent's rules on the host.
const postrouting = "postrouting"

// RecogniseHost is [Recognise] for the node's own namespace. Istio's agent writes a rule for each
// family there, which gives connections of the node's programs to the pods of its set the probe
// address of the numbers. By iptables that holds for all programs, and by nft for those of one
// user, whichever that is: the agent looks for the kubelet's.
//
// What [ambient.HostPlan] does to the pods of its own sets is the same or more. So these rules can
// be removed once each enrolled pod of the node is in an [ambient.ProbeSet].
func RecogniseHost(chains []interception.ForeignChain, n ambient.Numbers) ([]Recognised, error) {
	return byProgram(chains, func(lines hookLines, program Program, found []interception.ForeignChain) (Recognised, error) {
		if err := n.Validate(); err != nil {
			return Recognised{}, fmt.Errorf("recognise rules of Istio's agent on the host: %w", err)
		}
		u := PodRules{IPv6: len(lines["v6 nat "+postrouting]) > 0}
		return Recognised{Program: program, Rules: u, Differences: lines.differences(hostLines(u, n, usersOf(program, found)))}, nil
	})
}

// hostLines returns the agent's rules on the host, for connections of some users.
func hostLines(u PodRules, n ambient.Numbers, users interception.Condition[interception.UIDSet]) hookLines {
	lines := hookLines{}
	for _, family := range families(u.IPv6) {
		i := slices.IndexFunc(n.Probes, func(a netip.Addr) bool { return interception.FamilyOf(a) == family })
		if i < 0 {
			continue
		}
		lines.add(family, "nat", postrouting, interception.Match{L4: interception.TCP(), UID: users},
			interception.Opaque{To: hostSet(family), Then: interception.SNATTo{Addr: n.Probes[i]}})
	}
	return lines
}

// HostSets returns the names of the ipsets of pods that Istio's agent makes on the host, where it
// writes its rules by iptables.
func HostSets() (names []string) {
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		names = append(names, hostSet(family))
	}
	return names
}

func hostSet(family interception.Family) string { return "istio-inpod-probes-" + family.String() }

// usersOf returns whose connections the rules are about: by nft those of the one user that the
// first rule names.
func usersOf(program Program, chains []interception.ForeignChain) interception.Condition[interception.UIDSet] {
	if program != ProgramNFT {
		return everyUser()
	}
	for _, c := range chains {
		for _, r := range c.Rules {
			if users := r.Match.UID.Set().Ranges(); len(users) == 1 && users[0].First == users[0].Last && !r.Match.UID.Negated() {
				return r.Match.UID
			}
		}
	}
	return interception.Condition[interception.UIDSet]{}
}
