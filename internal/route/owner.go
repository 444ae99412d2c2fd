// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"hash/fnv"

	"github.com/meshcni/meshcni/interception"
)

// The range of protocol numbers for owners. Lower ones are in iproute2's rt_protos (the highest is
// eigrp, 192) or FRRouting's (up to 198). The named protocols of addresses are below 4
// (linux/if_addr.h).
const (
	FirstProtocol = 200
	LastProtocol  = 253
)

// Protocol returns the protocol number that an owner's routes, policy rules and addresses carry
// unless another number is set.
func Protocol(owner interception.Owner) uint8 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(owner))
	return uint8(FirstProtocol + sum.Sum32()%(LastProtocol-FirstProtocol+1))
}

// Protocols are the protocol numbers of owners that do not use that of [Protocol].
type Protocols map[interception.Owner]uint8

// staticProtocol is RTPROT_STATIC, the last of the well-known numbers (linux/rtnetlink.h).
const staticProtocol = 4

// Validate refuses the numbers of the kernel and the administrator.
func (p Protocols) Validate() error {
	for owner, protocol := range p {
		if protocol <= staticProtocol {
			return fmt.Errorf("protocol %d of %s: the numbers up to %d are the kernel's and the administrator's", protocol, owner, staticProtocol)
		}
	}
	return nil
}

// Owner returns an owner with its number.
func (p Protocols) Owner(name interception.Owner) Owner {
	if protocol, ok := p[name]; ok {
		return Owner{Name: name, Protocol: protocol}
	}
	return Owner{Name: name, Protocol: Protocol(name)}
}

// Owner identifies whose objects they are, and how the kernel marks them.
type Owner struct {
	// Name is the owner.
	Name interception.Owner
	// Protocol is the number that its routes, policy rules and addresses carry.
	Protocol uint8
}

// alias returns the ifalias of the owner's links.
func (o Owner) alias() string { return "meshcni " + string(o.Name) }

// group returns the group that the owner's links have from the start; the alias comes later.
func (o Owner) group() uint32 { return 0x6d650000 | uint32(o.Protocol) }
