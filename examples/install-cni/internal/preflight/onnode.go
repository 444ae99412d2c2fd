// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/collision"
	"github.com/meshcni/meshcni/interception"
)

// NodeFindings returns what in a view keeps ambient mode from working where the node's own
// namespace captures the pods, with these numbers and this way to the proxy. There a network that
// takes packets past the host's rules takes them past the mesh. Probes and NetworkPolicies see the
// addresses that they see without the mesh. The error is one of the numbers.
func NodeFindings(v View, n ambient.NodeNumbers, way ambient.Way) ([]Finding, error) {
	plans, err := ExamplePlans(n, way)
	if err != nil {
		return nil, err
	}
	plugins := pluginsOf(v.Configs)
	return slices.Concat(
		v.ciliumOnNode(plugins), v.calicoOnNode(), v.terwayOnNode(plugins), v.podLinks(plugins), v.bridgedPods(), v.localServices(),
		v.branchesOnNode(n), v.secondaryENIs(), v.precedes(n), v.collisions(plans[0]), v.sourceChecks(n), v.features(), v.unknown(),
	), nil
}

// ExamplePlans returns what the node's namespace holds while a proxy takes the place of another
// one, and what the namespace of the first one holds. The proxies have addresses that are for
// documentation (RFC 5737, RFC 3849).
func ExamplePlans(n ambient.NodeNumbers, way ambient.Way) ([]*interception.Plan, error) {
	const owner = "pre-flight"
	facts := interception.Facts{IPv6: true, LoopbackIPv6: true}
	proxy := func(generation uint8) ambient.NodeProxy {
		v4, v6 := netip.AddrFrom4([4]byte{192, 0, 2, 1 + generation}), netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 15: 1 + generation})
		return ambient.NodeProxy{
			Addresses: []netip.Addr{v4, v6},
			Way:       way, Namespace: fmt.Sprintf("proxy%d", generation), Node: netip.AddrFrom4([4]byte{192, 0, 2, 254}), Generation: generation,
		}
	}
	node, err := ambient.NodePlan(proxy(0), n, facts, owner, proxy(1))
	if err != nil {
		return nil, err
	}
	first, err := ambient.ProxyPlan(proxy(0), n, facts, owner)
	return []*interception.Plan{node, first}, err
}

// inPod is what to do where a network cannot have the capture on the node.
const inPod = "set ambient-mode=in-pod, which needs no rules of the host for captured connections"

func (v View) ciliumOnNode(plugins []plugin) (all []Finding) {
	for _, f := range v.cilium(v.usesCilium(plugins)) {
		if f.Code == CiliumDatapath {
			f.Do = inPod + "; or have Cilium use the host's rules: its Helm values bpf.hostLegacyRouting=true, kubeProxyReplacement=false and " +
				"bpf.datapathMode=veth. If they are set, ignore this"
		}
		all = append(all, f)
	}
	return all
}

func (v View) calicoOnNode() (all []Finding) {
	for _, f := range v.calico() {
		f.Seen, _, _ = strings.Cut(f.Seen, ":")
		f.Seen += ": it sends the packets of pods past the host's rules, so that they are not captured"
		f.Do += "; or " + inPod
		all = append(all, f)
	}
	if len(all) > 0 || !v.ByIPTables {
		return all
	}
	const calico = "cali" // in names of links, which differ with the plugins of clouds, and of chains
	seen := ""
	for _, link := range v.Links {
		if strings.HasPrefix(link.Name, calico) {
			seen = "the link " + link.Name
		}
	}
	for _, chain := range v.Standing.Chains {
		if strings.HasPrefix(chain.Name, calico+"-") {
			seen = "the chain " + chain.Name + " of table " + chain.Table
		}
	}
	if seen != "" {
		all = append(all, Finding{
			CalicoOrder, "iptables writes the rules of the mesh, and " + seen + " is Calico's, whose Felix moves its own rules " +
				"before all others and accepts packets of known connections there: captured connections are then refused or bypass the proxy",
			"set chainInsertMode: Append in Calico's FelixConfiguration, or dataplane=nftables for the mesh where the kernel has nf_tables. " +
				"If Felix is set so already, or writes no rules by iptables, ignore this",
		})
	}
	return all
}

func (v View) terwayOnNode(plugins []plugin) (all []Finding) {
	for _, f := range v.terway(plugins) {
		f.Do = "use Terway's veth type on nodes of the mesh; or " + inPod
		all = append(all, f)
	}
	return all
}

// podLinks finds links of pods from which no packet passes the host's rules.
func (v View) podLinks(plugins []plugin) (all []Finding) {
	found := func(seen string) Finding {
		return Finding{PodLinks, seen + ": packets of pods may go past the host's rules, and are not captured then", inPod}
	}
	for _, p := range plugins {
		switch p.Type {
		case "ipvlan", "macvlan", "vlan", "host-device", "sriov", "ib-sriov":
			all = append(all, found(fmt.Sprintf("%s gives pods links by the plugin %s", p.file, p.Type)))
		}
	}
	of := func(kind string) int { return slices.IndexFunc(v.Links, func(l Link) bool { return l.Kind == kind }) }
	if i := of("netkit"); i >= 0 {
		all = append(all, found("the link "+v.Links[i].Name+" is of type netkit"))
	}
	if i := of("openvswitch"); i >= 0 { // net/openvswitch/vport-internal_dev.c
		all = append(all, found("the link "+v.Links[i].Name+" is of Open vSwitch, as with Antrea, OVN-Kubernetes and Kube-OVN"))
	}
	return all
}

// bridgedPods finds a bridge that switches packets between pods.
func (v View) bridgedPods() []Finding {
	for _, link := range v.Links {
		if link.Kind == "veth" && link.Bridge != "" {
			return []Finding{{
				BridgedPods, fmt.Sprintf("the link %s is a port of the bridge %s: pods at its ports reach each other past the host's routes, "+
					"so that such connections are not captured, or are refused where net.bridge.bridge-nf-call-iptables is 1", link.Name, link.Bridge),
				"use a network that routes between the pods of a node, such as one with a /32 route for each; or " + inPod +
					". If the pods of the mesh are not at this bridge, ignore this",
			}}
		}
	}
	return nil
}

// ipvsLink has the addresses of services where kube-proxy works in its mode ipvs.
const ipvsLink = "kube-ipvs0"

// localServices finds kube-proxy's mode in which services have addresses of the node, which are
// never captured.
func (v View) localServices() []Finding {
	if !v.hasLink(ipvsLink) {
		return nil
	}
	return []Finding{{
		LocalServices, "the link " + ipvsLink + " has the addresses of services, as kube-proxy works in its mode ipvs: " +
			"connections of meshed pods to services are not captured",
		"set kube-proxy's mode to nftables or iptables; or " + inPod,
	}}
}

// branchesOnNode finds pods whose packets a policy rule of AWS's plugin sends away before those of
// the mesh are looked at.
func (v View) branchesOnNode(n ambient.NodeNumbers) []Finding {
	for _, rule := range v.Rules {
		if strings.HasPrefix(rule.From, "vlan") && rule.Priority < int(n.Outbound.Priority) {
			return []Finding{{
				BranchENI, fmt.Sprintf("the policy rule with priority %d routes the link %s of a pod by table %d (security groups for pods), "+
					"and precedes those of the mesh: connections of such a pod are refused once it is in the mesh", rule.Priority, rule.From, rule.Table),
				"leave pods with security groups of their own out of the mesh; or " + inPod,
			}}
		}
	}
	return nil
}

// secondaryENIs finds pods with addresses of other network interfaces of the node than its first,
// by two policy rules of AWS's plugin: what such a pod sends goes out by its own interface, unless
// it belongs to a connection that came by the first one (mark 0x80). What the proxy sends in the
// pod's name comes by no link of the pod, and AWS's rules do not give it that mark.
func (v View) secondaryENIs() []Finding {
	const ofPods, firstInterface = 1536, 0x80
	var byMark, byPod bool
	for _, rule := range v.Standing.PolicyRules {
		byMark = byMark || rule.Mark == interception.MarkBits{Value: firstInterface, Mask: firstInterface}
		byPod = byPod || rule.Priority == ofPods && rule.Source.IsSingleIP()
	}
	if !byMark || !byPod {
		return nil
	}
	return []Finding{{
		SecondaryENI, "policy rules of AWS's plugin route what some pods send by a secondary network interface. What the proxy sends for " +
			"these pods with an address of the first one is lost: answers to connections to node ports and, without external SNAT, " +
			"connections to the internet",
		"leave these pods out of the mesh, or set ENABLE_PREFIX_DELEGATION=true at aws-node so that pods need no second interface; or " + inPod,
	}}
}

// precedes finds other policy rules before those of the mesh that packets of pods may meet.
func (v View) precedes(n ambient.NodeNumbers) []Finding {
	last := max(n.Outbound.Priority, n.Inbound.Priority, n.Replies.Priority)
	for _, rule := range v.Standing.PolicyRules {
		const local = 255
		ours := rule.Mark.Mask != 0 || strings.HasPrefix(string(rule.In), "vlan") // other findings are about those
		if rule.Priority < last && rule.Table != local && !ours {
			return []Finding{{
				ForeignPriority, fmt.Sprintf("the policy rule with priority %d, to table %d, precedes those of the mesh, which end with %d",
					rule.Priority, rule.Table, last),
				"find the program that makes it (ip rule), and give its rule a higher number, unless it concerns no pod",
			}}
		}
	}
	return nil
}

func (v View) collisions(plan *interception.Plan) (all []Finding) {
	for _, c := range collision.Find(plan, v.Standing) {
		all = append(all, Finding{
			ForeignNumbers, "the mesh needs what another program has on the host: " + c.String(),
			"have the other program use something else; or " + inPod,
		})
	}
	return all
}

// sourceChecks finds rules that drop packets whose source another interface leads to, as those are
// that come by the wires.
func (v View) sourceChecks(n ambient.NodeNumbers) []Finding {
	for _, chain := range v.Standing.Chains {
		if chain.Hook != "prerouting" {
			continue
		}
		for _, rule := range chain.Rules {
			text := cmp.Or(rule.Match.String(), "any") + " -> " + fmt.Sprint(rule.Action)
			in := rule.Match.In
			ofWires := !in.Present() || in.Set().Contains(n.OutboundWire.Node) != in.Negated()
			if ofWires && (strings.Contains(text, "fib") || strings.Contains(text, "rpfilter")) {
				return []Finding{{
					SourceCheck, fmt.Sprintf("the chain %s of table %s looks where the sources of packets are: %s", chain.Name, chain.Table, text),
					fmt.Sprintf("exempt the links %s* and %s*, by which packets with addresses of pods come: with firewalld IPv6_rpfilter=no; "+
						"Calico's felix checks the pods' links alone, and needs nothing", n.InboundWire.Node, n.OutboundWire.Node),
				}}
			}
		}
	}
	return nil
}
