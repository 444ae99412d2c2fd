// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// The kernel's own routing tables (ip-route(8)).
const (
	mainTable  interception.RoutingTable = 254
	localTable interception.RoutingTable = 255
)

// Branch is a pod with a network interface of its own in the cloud's network, such as a pod of AWS
// that has security groups. The network's plugin routes it by a table of its own. A policy rule of
// the plugin selects that table for what comes from the pod, and none for what the node sends:
//
//	ip rule:               10: from all iif vlan1a2b3c lookup 101
//	ip route, table 101:   default via 10.0.0.1 dev vlan.eth.1
//	                       10.0.3.7 dev vlan1a2b3c scope link
//
// A probe would therefore leave by the node's main interface, and an answer would be forwarded into
// the network. [HostPlan] adds a policy rule for each direction, and replaces none of the
// plugin's. Istio's agent adds these rules only where net.ipv4.tcp_early_demux is 0, as the plugin
// has it for such pods. The caller decides about that, and finds the branches.
//
// The zero value is invalid.
type Branch struct {
	// Pod is the pod's address.
	Pod netip.Addr
	// Link is the node's link to the pod, which the plugin's policy rule names.
	Link interception.Interface
	// Table is the table that the plugin's policy rule selects. It has the route to Pod.
	Table interception.RoutingTable
	// Priority is that of the plugin's policy rule, at least 2: answers are looked up at the
	// priority before it.
	Priority uint32
}

// ErrBranch is wrapped by errors about a [Branch] that cannot be, or that contradicts another one.
var ErrBranch = errors.New("invalid branch")

// validateBranches returns an error that names the first invalid branch, and what to change.
func validateBranches(branches []Branch) error {
	type end struct {
		family interception.Family
		link   interception.Interface
	}
	pods, links := map[netip.Addr]bool{}, map[end]netip.Addr{}
	for _, b := range branches {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%w of pod %s by link %q: %s", ErrBranch, b.Pod, b.Link, fmt.Sprintf(format, args...))
		}
		if !b.Pod.IsValid() || b.Pod.Is4In6() || b.Pod.Zone() != "" {
			return fail("give the pod's plain address")
		}
		at := end{interception.FamilyOf(b.Pod), b.Link}
		other, taken := links[at]
		switch {
		case b.Table == 0 || b.Table == mainTable || b.Table == localTable:
			return fail("table %d is not one of the pod's own: give the table of the policy rule for this link", b.Table)
		case b.Priority < 2:
			return fail("no priority precedes %d: give that of the policy rule for this link, which must be 2 or more", b.Priority)
		case pods[b.Pod]:
			return fail("the pod is given twice")
		case taken:
			return fail("pod %s has the same link", other)
		}
		pods[b.Pod], links[at] = true, b.Pod
	}
	return nil
}

// rules adds the policy rules by which a probe reaches the pod, and its answer the node.
func (b Branch) rules(to *interception.Builder, priority uint32) {
	family := interception.FamilyOf(b.Pod)
	to.PolicyRule(interception.PolicyRule{
		ID: b.id("answer"), Family: family, In: b.Link, Table: localTable, Priority: b.Priority - 1,
		Why: "answers to the node stay on the node",
	})
	to.PolicyRule(interception.PolicyRule{
		ID: b.id("branch"), Family: family, Destination: netip.PrefixFrom(b.Pod, b.Pod.BitLen()), Table: b.Table, Priority: priority,
		Why: "the node reaches the pod by its own table",
	})
}

// id joins a word and the address. The digits of an IPv6 address leave no room for a separator.
func (b Branch) id(word string) interception.RuleID {
	if b.Pod.Is4() {
		return interception.RuleID(word + "." + strings.ReplaceAll(b.Pod.String(), ".", "-"))
	}
	return interception.RuleID(word + "." + hex.EncodeToString(b.Pod.AsSlice()))
}
