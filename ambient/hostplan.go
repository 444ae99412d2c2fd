// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// ProbeSet returns the name of the live set that holds the addresses of the node's enrolled pods,
// of one family, in [HostPlan].
func ProbeSet(family interception.Family) interception.SetName {
	return interception.SetName("probes-" + family.String())
}

// probesFirst moves the rules of the host before those of other programs, such as kube-proxy and
// the network's plugin: the first translation of a connection counts.
const probesFirst = -10

// HostPlan returns the plan for the node's own network namespace. It gives a connection of the
// node's own programs to a pod in [ProbeSet] the probe address of the family as its source, by
// which the rules of [PodPlan] let it pass: the kubelet's probes reach the application although it
// takes connections of the mesh only. What the node forwards, such as connections between pods,
// stays as it is.
//
// The rules cannot tell the kubelet from another process: every program in the host's network, also
// that of a pod with hostNetwork, reaches the pods of its own node in this way.
//
// The rules come before those of other programs: the first translation of a connection counts. In
// nftables their priority sees to that. All of iptables has one priority, so there another
// program's chain in nf_tables at srcnat, such as kube-proxy's in its nftables mode, comes first if
// it is created later.
//
// The sets are live: the caller edits their members as pods come and go. Without Facts.IPv6, and
// for a family without a probe address, there is nothing for the family. Each branch adds two
// policy rules, as [Branch] describes; invalid ones are errors that wrap [ErrBranch].
func HostPlan(n Numbers, f interception.Facts, owner interception.Owner, branches ...Branch) (*interception.Plan, error) {
	if err := cmp.Or(n.Validate(), validateBranches(branches)); err != nil {
		return nil, fmt.Errorf("plan ambient host: %w", err)
	}
	return interception.Build(owner, func(b *interception.Builder) {
		c := b.NAT("probes")
		c.EntryAt(interception.Postrouting, probesFirst, interception.Match{L4: interception.TCP()}, "connections that leave the node or reach a pod")
		for _, family := range families(f) {
			i := slices.IndexFunc(n.Probes, func(a netip.Addr) bool { return interception.FamilyOf(a) == family })
			if i < 0 {
				continue
			}
			set := b.LiveAddresses(ProbeSet(family), family, "enrolled pods of the node")
			c.Do(id("probes", family), interception.Match{
				DstSet: interception.Is(set), L4: interception.TCP(), UID: everyUser(),
			}, interception.SNATTo{Addr: n.Probes[i]}, "programs of the node are recognised by this address")
		}
		for _, branch := range branches {
			if slices.Contains(families(f), interception.FamilyOf(branch.Pod)) {
				branch.rules(b, n.BranchPriority)
			}
		}
	})
}

// everyUser matches each packet that a process of the node has sent: forwarded packets have no
// user, and no process has this number. A range of all users would need them to have numbers in the
// namespace of users that owns the network.
func everyUser() interception.Condition[interception.UIDSet] {
	return interception.Not(interception.UIDs(^interception.UID(0)))
}
