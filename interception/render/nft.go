// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// NFT returns the plan as a script for nft(8). The script replaces what the owner had: its first
// two commands make sure that the owner's table exists, and delete it with all its contents; nft
// commits a script as one transaction. A plan without objects ends there. Live sets are empty, even
// if the owner had members in them.
//
// nft has no syntax for links, addresses, sysctls, routes and policy rules. They are comments at
// the top, as equivalent commands of ip(8) and sysctl(8). nft ignores them, and package nftables
// does more than they say: it distinguishes the owner's objects from those that existed before.
//
// NFT validates the plan first, so that the text contains only names and reasons of the closed
// alphabets. The error is that of [interception.Plan.Validate], or wraps
// [interception.ErrUnsupported] for an action that this renderer cannot express in nft.
func NFT(p *interception.Plan) ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("render plan for nft: %w", err)
	}
	var b bytes.Buffer
	writeHead(&b, p)
	fmt.Fprintf(&b, "table inet %s\ndelete table inet %s\n", p.Owner, p.Owner)
	if len(p.Objects) == 0 {
		return b.Bytes(), nil
	}
	fmt.Fprintf(&b, "table inet %s {\n", p.Owner)
	blank := ""
	lengths := map[interception.SetName]int{} // of the sets of networks
	for set := range p.Sets() {
		b.WriteString(blank)
		lengths[set.Name] = writeSet(&b, set)
		blank = "\n"
	}
	for _, chain := range lower.Chains(p) {
		b.WriteString(blank)
		if err := writeChain(&b, chain, lengths); err != nil {
			return nil, fmt.Errorf("render plan for nft: %w", err)
		}
		blank = "\n"
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// writeSet returns the length in bits of the set's networks, or 0 for a set of intervals.
func writeSet(b *bytes.Buffer, s interception.Set) (bits int) {
	key := "ipv4_addr"
	if s.Family == interception.IPv6 {
		key = "ipv6_addr"
	}
	networks, bits := lower.Networks(s)
	flags := "\t\tflags constant, interval\n"
	switch {
	case s.Addresses:
		flags = ""
	case s.Live:
		flags = "\t\tflags interval\n"
	case bits != 0:
		flags = "\t\tflags constant\n"
	}
	fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n%s\t\tcomment %q\n", lower.SetName(s.Name, bits), key, flags, s.Why)
	switch {
	case s.Live:
	case bits != 0:
		writeElements(b, networks)
	default:
		writeElements(b, lower.Intervals(s.Members))
	}
	b.WriteString("\t}\n")
	return bits
}

func writeElements[T fmt.Stringer](b *bytes.Buffer, elements []T) {
	b.WriteString("\t\telements = {\n")
	for _, element := range elements {
		fmt.Fprintf(b, "\t\t\t%s,\n", element)
	}
	b.WriteString("\t\t}\n")
}

func writeChain(b *bytes.Buffer, c lower.Chain, lengths map[interception.SetName]int) error {
	fmt.Fprintf(b, "\tchain %s {\n", c.Name)
	if c.Base != nil {
		fmt.Fprintf(b, "\t\ttype %s hook %s priority %d; policy accept;\n", c.Base.Type, c.Base.Hook, c.Base.Priority)
	}
	for _, r := range c.Rules {
		action, err := actionWords(r)
		if err != nil {
			return fmt.Errorf("%s (%s): %w", r.ID, r.Why, err)
		}
		words := append(matchWords(r.Match, lengths), action, fmt.Sprintf("comment %q", r.Comment))
		fmt.Fprintf(b, "\t\t%s\n", strings.Join(words, " "))
	}
	b.WriteString("\t}\n")
	return nil
}

// writeHead writes a comment for each object that nft has no syntax for.
func writeHead(b *bytes.Buffer, p *interception.Plan) {
	for _, object := range p.Objects {
		switch o := object.(type) {
		case interception.Link:
			fmt.Fprintf(b, "# ip link add %s up%s type %s # %s: %s\n", o.Name, linkOptions(o), linkType(o), o.ID, o.Why)
		case interception.Address:
			fmt.Fprintf(b, "# ip address add %s dev %s # %s: %s\n", o.Prefix, o.Device, o.ID, o.Why)
		case interception.Sysctl:
			fmt.Fprintf(b, "# sysctl -w net/%s=%d # %s: %s\n", o.Key, o.Value, o.ID, o.Why)
		case interception.Route:
			fmt.Fprintf(b, "# %s # %s: %s\n", routeWords(o), o.ID, o.Why)
		case interception.PolicyRule:
			fmt.Fprintf(b, "# ip %s rule add priority %d%s %s # %s: %s\n",
				familyOption(o.Family), o.Priority, selectors(o), ruleTarget(o, "table"), o.ID, o.Why)
		}
	}
}

// linkOptions returns the parameters that links of every type have, each after a space.
func linkOptions(l interception.Link) string {
	words := ""
	if l.MTU != 0 {
		words += fmt.Sprintf(" mtu %d", l.MTU)
	}
	if l.HardwareAddr != "" {
		words += " address " + l.HardwareAddr
	}
	return words
}

// linkType returns the type of a link in the words of ip-link(8). The namespace of a pair's other
// end has its label.
func linkType(l interception.Link) string {
	switch {
	case l.Geneve != nil:
		return fmt.Sprintf("geneve id %d remote %s dstport %d", l.Geneve.VNI, l.Geneve.Remote, l.Geneve.Port)
	case l.VXLAN != nil:
		return fmt.Sprintf("vxlan id %d remote %s dstport %d nolearning", l.VXLAN.VNI, l.VXLAN.Remote, l.VXLAN.Port)
	case l.Veth != nil:
		return fmt.Sprintf("veth peer name %s netns %s", l.Veth.Peer, l.Veth.Namespace)
	default:
		return "dummy"
	}
}

func routeWords(r interception.Route) string {
	family := familyOption(interception.FamilyOf(r.Destination.Addr()))
	words := fmt.Sprintf("ip %s route add %s %s", family, r.Type, r.Destination)
	if r.Device != "" {
		words += " dev " + string(r.Device)
	}
	if r.Gateway.IsValid() {
		words += " via " + r.Gateway.String()
	}
	return words + routeOptions(r) + " table " + tableName(r.Table)
}

// routeOptions returns what few routes have, in the words of ip-route(8), each after a space.
func routeOptions(r interception.Route) string {
	words := ""
	if r.OnLink {
		words += " onlink"
	}
	if r.Source.IsValid() {
		words += " src " + r.Source.String()
	}
	if r.Metric != 0 {
		words += fmt.Sprintf(" metric %d", r.Metric)
	}
	return words
}

// ruleTarget returns where a policy rule leads. The word for a table is "table" or "lookup".
func ruleTarget(r interception.PolicyRule, table string) string {
	if r.Goto != 0 {
		return fmt.Sprintf("goto %d", r.Goto)
	}
	return table + " " + tableName(r.Table)
}

// selectors returns the conditions of a policy rule in the words of ip-rule(8), each after a space.
func selectors(r interception.PolicyRule) string {
	words := ""
	if r.Source.IsValid() {
		words += " from " + r.Source.String()
	}
	if r.Destination.IsValid() {
		words += " to " + r.Destination.String()
	}
	if r.In != "" {
		words += " iif " + string(r.In)
	}
	if !r.Mark.IsEmpty() {
		words += " fwmark " + r.Mark.String()
	}
	return words
}

func familyOption(f interception.Family) string {
	if f == interception.IPv6 {
		return "-6"
	}
	return "-4"
}

func tableName(t interception.RoutingTable) string {
	if t == 0 {
		return "main"
	}
	return fmt.Sprint(uint32(t))
}
