// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"net/netip"
)

// Link is an object of a plan: a network interface of the plan's own.
type Link struct {
	// ID is unique in the plan.
	ID RuleID
	// Name is the interface's name.
	Name Interface
	// Geneve makes the interface a GENEVE tunnel (RFC 8926); nil makes it a dummy.
	Geneve *Geneve
	// Why is the constant reason.
	Why string
	// From is the provenance.
	From []Source
}

// Geneve is the far end of a GENEVE tunnel.
type Geneve struct {
	// VNI is the virtual network identifier, 24 bits.
	VNI uint32 `json:"vni"`
	// Remote is the far end's address.
	Remote netip.Addr `json:"remote"`
	// Port is the far end's UDP port; there must be one.
	Port Port `json:"port"`
}

func (l Link) text() string {
	if l.Geneve == nil {
		return fmt.Sprintf("link %s dummy", l.Name)
	}
	return fmt.Sprintf("link %s geneve vni %d remote %s", l.Name, l.Geneve.VNI, netip.AddrPortFrom(l.Geneve.Remote, uint16(l.Geneve.Port)))
}
