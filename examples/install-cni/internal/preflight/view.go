// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"

	"github.com/meshcni/meshcni/ambient/collision"
)

// View is what was seen of a node. The zero value is a node without anything.
type View struct {
	// Configs are the files of the CNI directory.
	Configs []Config
	// Links are the links in the host's network namespace.
	Links []Link
	// Rules are the host's policy rules.
	Rules []Rule
	// Standing is what other programs have of the numbers of [ambient.NodeNumbers] on the host. It is
	// looked at where the node's namespace captures the pods.
	Standing collision.Standing
	// EarlyDemux reports that net.ipv4.tcp_early_demux is on.
	EarlyDemux bool
	// ByIPTables reports that iptables writes the rules, in the chains of other programs.
	ByIPTables bool
	// Missing are what the kernel and the programs lack, for each way to write rules. It is empty if
	// one way works.
	Missing []string
	// Policies are the cluster's NetworkPolicies, if they were given.
	Policies []NetworkPolicy
	// Unknown says what could not be looked at, and why.
	Unknown []string
}

// Config is a file of the CNI directory.
type Config struct {
	Name string
	Text []byte
}

// Link is a network link of the host.
type Link struct {
	Name string
	// Kind is that of rtnetlink, such as "veth" or "ipvlan".
	Kind string
	// Bridge is the bridge that the link is a port of; empty if it is none.
	Bridge string
	// Programs are the names of the eBPF programs at its traffic control hooks and XDP.
	Programs []string
	// Addresses are the link's.
	Addresses []netip.Addr
}

// Rule is a policy rule (ip-rule(8)).
type Rule struct {
	Priority int
	// From is the link that packets come from; empty if any.
	From string
	// Table is the routing table that the rule selects.
	Table int
}

// Finding is something that keeps ambient mode, or a part of it, from working.
type Finding struct {
	// Code is stable: programs may compare it.
	Code Code `json:"code"`
	// Seen is what was seen, and where.
	Seen string `json:"seen"`
	// Do is what the operator can do.
	Do string `json:"do"`
}

// Code names a kind of [Finding].
type Code string

// The codes.
const (
	// CiliumExclusive: Cilium takes the CNI configurations of other programs away.
	CiliumExclusive Code = "cilium-exclusive"
	// CiliumDatapath: Cilium's programs may bypass the host's rule for probes.
	CiliumDatapath Code = "cilium-datapath"
	// CalicoEBPF: Calico's programs bypass the host's rule for probes.
	CalicoEBPF Code = "calico-ebpf"
	// CalicoOrder: Calico's rules come before those of the mesh in iptables' chains.
	CalicoOrder Code = "calico-order"
	// OVNGateway: OVN-Kubernetes may send what the node sends to pods past the host's rules.
	OVNGateway Code = "ovn-gateway-mode"
	// TerwayDatapath: the links of Terway bypass the host's rules.
	TerwayDatapath Code = "terway-datapath"
	// BranchENI: pods have network interfaces of their own in AWS (security groups for pods).
	BranchENI Code = "aws-branch-eni"
	// SecondaryENI: pods have addresses of other network interfaces of the node in AWS.
	SecondaryENI Code = "aws-secondary-eni"
	// SourceRouting: a CNI plugin takes the routing table in pods that the proxy's replies need.
	SourceRouting Code = "source-routing"
	// KernelFeatures: no dataplane can write the rules.
	KernelFeatures Code = "kernel-features"
	// ForeignPriority: another program has a policy rule with our priority.
	ForeignPriority Code = "foreign-priority"
	// ForeignAddress: the host has the address that marks its probes.
	ForeignAddress Code = "foreign-address"
	// PodLinks: pods have links from which packets go past the host's rules.
	PodLinks Code = "pod-links"
	// BridgedPods: a bridge switches packets between pods, past the host's routes.
	BridgedPods Code = "bridged-pods"
	// LocalServices: kube-proxy gives the node the addresses of services.
	LocalServices Code = "local-services"
	// ForeignNumbers: another program has a mark, a table, a link, a subnet or a port that the mesh
	// needs on the host.
	ForeignNumbers Code = "foreign-numbers"
	// SourceCheck: a rule of another program drops packets that come by the way from the proxy.
	SourceCheck Code = "source-check"
	// PolicyTunnel: a NetworkPolicy allows ports without the tunnel's.
	PolicyTunnel Code = "policy-tunnel"
	// PolicyProbes: a NetworkPolicy does not allow the address of probes, and Cilium enforces it.
	PolicyProbes Code = "policy-probes"
	// Unknown: something could not be looked at.
	Unknown Code = "unknown"
)
