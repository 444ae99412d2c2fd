// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient"
)

// Findings returns what in a view keeps ambient mode with these numbers from working; none if all
// is fine.
func Findings(v View, n ambient.Numbers) []Finding {
	plugins := pluginsOf(v.Configs)
	cilium := v.usesCilium(plugins)
	return slices.Concat(
		v.cilium(cilium), v.calico(), v.ovn(), v.terway(plugins), v.branches(), v.sourceRouting(plugins, n), v.features(), v.foreign(n),
		policies(v.Policies, n, cilium), v.unknown(),
	)
}

// plugin is a plugin's entry in a CNI configuration.
type plugin struct {
	file string
	Type string `json:"type"`
	// Virtual is how Terway connects pods.
	Virtual string `json:"eniip_virtual_type"`
}

// pluginsOf returns the entries of the files that are configurations. Whether the others should be
// is for install-cni status to say.
func pluginsOf(configs []Config) (all []plugin) {
	for _, config := range configs {
		var list struct {
			plugin
			Plugins []plugin `json:"plugins"`
		}
		if json.Unmarshal(config.Text, &list) != nil {
			continue
		}
		if list.Type != "" {
			list.Plugins = append(list.Plugins, list.plugin)
		}
		for _, entry := range list.Plugins {
			entry.file = config.Name
			all = append(all, entry)
		}
	}
	return all
}

// ciliumLink is what every version of Cilium makes on a node.
const ciliumLink = "cilium_host"

func (v View) usesCilium(plugins []plugin) bool {
	return slices.ContainsFunc(plugins, func(p plugin) bool { return p.Type == "cilium-cni" }) || v.hasLink(ciliumLink)
}

func (v View) hasLink(name string) bool {
	return slices.ContainsFunc(v.Links, func(l Link) bool { return l.Name == name })
}

func (v View) cilium(is bool) (all []Finding) {
	if !is {
		return nil
	}
	for _, config := range v.Configs {
		if strings.HasSuffix(config.Name, ".cilium_bak") {
			all = append(all, Finding{
				CiliumExclusive, fmt.Sprintf("Cilium has renamed a CNI configuration of another program, to %s", config.Name),
				"set Cilium's Helm value cni.exclusive=false, so that it leaves the entry of istio-cni alone",
			})
			break
		}
	}
	if v.hasLink(ciliumLink) {
		all = append(all, Finding{
			CiliumDatapath, "Cilium's link " + ciliumLink + " is on the node: its programs may send packets past the host's rules",
			"set Cilium's Helm value bpf.hostLegacyRouting=true, and with versions that need it bpf.masquerade=false: without them the " +
				"kubelet's probes of pods in the mesh fail. If probes pass, ignore this",
		})
	}
	return all
}

// calico recognises Calico's eBPF dataplane by its links, and by its programs on others.
func (v View) calico() []Finding {
	for _, link := range v.Links {
		seen := ""
		if strings.HasSuffix(link.Name, ".cali") && strings.HasPrefix(link.Name, "bpf") {
			seen = "the link " + link.Name + " of Calico's eBPF dataplane is on the node"
		}
		for _, program := range link.Programs {
			if strings.HasPrefix(program, "cali") {
				seen = fmt.Sprintf("Calico's eBPF program %s is on the link %s", program, link.Name)
			}
		}
		if seen != "" {
			return []Finding{{
				CalicoEBPF, seen + ": it sends packets past the host's rules, and so the kubelet's probes of pods in the mesh fail",
				"use Calico's iptables or nftables dataplane (linuxDataplane of its Installation)",
			}}
		}
	}
	return nil
}

// ovn recognises OVN-Kubernetes by the node's link to it. It looks the same in both gateway modes.
func (v View) ovn() []Finding {
	const link = "ovn-k8s-mp0"
	if !v.hasLink(link) {
		return nil
	}
	return []Finding{{
		OVNGateway, "the link " + link + " is OVN-Kubernetes', which in its gateway mode shared sends what the node sends to pods past the " +
			"host's rules: the kubelet's probes of pods in the mesh fail",
		"set the gateway mode local; on OpenShift set gatewayConfig.routingViaHost: true in the Network object named cluster of " +
			"operator.openshift.io. If it is set already, ignore this",
	}}
}

func (v View) terway(plugins []plugin) (all []Finding) {
	for _, p := range plugins {
		if p.Type == "terway" && p.Virtual != "" && !strings.EqualFold(p.Virtual, "veth") {
			all = append(all, Finding{
				TerwayDatapath, fmt.Sprintf("%s has Terway with eniip_virtual_type %q: packets to pods go past the host's rules", p.file, p.Virtual),
				"use Terway's veth type on nodes of the mesh, or exempt the kubelet's probes in the mesh's own policies",
			})
		}
	}
	return all
}

// branches recognises the links of AWS's plugin by its policy rules: those come from a vlan link.
// The agent's own rules make probes of these pods work only where the kernel routes their packets.
func (v View) branches() []Finding {
	for _, rule := range v.Rules {
		if v.EarlyDemux && strings.HasPrefix(rule.From, "vlan") {
			return []Finding{{
				BranchENI, fmt.Sprintf("the policy rule with priority %d routes the link %s of a pod by table %d (security groups for pods), "+
					"and net.ipv4.tcp_early_demux is on: probes of such a pod get no answer once it is in the mesh", rule.Priority, rule.From, rule.Table),
				"set DISABLE_TCP_EARLY_DEMUX=true at the DaemonSet aws-node, or leave pods with security groups of their own out of the mesh",
			}}
		}
	}
	return nil
}

// sourceRouting finds the plugin sbr, which counts tables up from 100.
func (v View) sourceRouting(plugins []plugin, n ambient.Numbers) (all []Finding) {
	for _, p := range plugins {
		if p.Type == "sbr" {
			all = append(all, Finding{
				SourceRouting,
				fmt.Sprintf("%s has the plugin sbr, which makes routing tables from 100 in pods; the mesh needs table %d there", p.file, n.Table),
				"leave pods of this network out of the mesh",
			})
		}
	}
	return all
}

func (v View) features() []Finding {
	if len(v.Missing) == 0 {
		return nil
	}
	return []Finding{{
		KernelFeatures, "no dataplane can write the rules of ambient mode: " + strings.Join(v.Missing, "; "),
		"load the kernel modules that are named, or use a kernel that has them",
	}}
}

// foreign finds what other programs have of our numbers on the host.
func (v View) foreign(n ambient.Numbers) (all []Finding) {
	for _, rule := range v.Rules {
		ofBranch := func(other Rule) bool { return other.From != "" && other.Table == rule.Table }
		if rule.Priority == int(n.BranchPriority) && !slices.ContainsFunc(v.Rules, ofBranch) { // else it is the agent's own
			all = append(all, Finding{
				ForeignPriority, fmt.Sprintf("another program has a policy rule with priority %d, to table %d", rule.Priority, rule.Table),
				"find the program that makes it (ip rule), and give its rule another priority",
			})
			break // one for each family is the same
		}
	}
	for _, link := range v.Links {
		for _, address := range link.Addresses {
			if slices.Contains(n.Probes, address) {
				all = append(all, Finding{
					ForeignAddress, fmt.Sprintf("the link %s has the address %s, by which pods of the mesh know probes", link.Name, address),
					"remove the address: what is sent from there would pass uncaptured",
				})
			}
		}
	}
	return all
}

func (v View) unknown() (all []Finding) {
	for _, what := range v.Unknown {
		all = append(all, Finding{
			Unknown, "could not look at " + what, "run the command as root in the daemon's container, with the node's directories mounted",
		})
	}
	return all
}
