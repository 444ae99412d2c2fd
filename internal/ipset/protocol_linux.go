// SPDX-License-Identifier: Apache-2.0

package ipset

// protocol is the version of the protocol; all kernels since 2.6.39 take it.
const protocol = 6

// The commands (enum ipset_cmd).
const (
	commandCreate  = 2
	commandDestroy = 3
	commandSwap    = 6
	commandList    = 7
	commandAdd     = 9
	commandDelete  = 10
	commandHeader  = 12
)

// The attributes of a command.
const (
	attributeProtocol = 1
	attributeName     = 2
	attributeType     = 3 // of Swap: the other set's name
	attributeRevision = 4
	attributeFamily   = 5
	attributeFlags    = 6
	attributeData     = 7
	attributeMembers  = 8 // IPSET_ATTR_ADT
	attributeLine     = 9 // required with several members
)

// The attributes of a set.
const (
	attributeSetFlags   = 8  // IPSET_ATTR_CADT_FLAGS
	attributeMaxMembers = 19 // IPSET_ATTR_MAXELEM
	attributeCount      = 24 // IPSET_ATTR_ELEMENTS
	attributeReferences = 25
)

// The attributes of a member, and of its address.
const (
	attributeAddress = 1
	attributeBits    = 3  // IPSET_ATTR_CIDR
	attributeComment = 26 // IPSET_ATTR_COMMENT
	attributeIPv4    = 1
	attributeIPv6    = 2
)

const (
	namesOnly    = 1 << 1 // IPSET_FLAG_LIST_SETNAME
	headerOnly   = 1 << 2 // IPSET_FLAG_LIST_HEADER
	withComments = 1 << 4 // IPSET_FLAG_WITH_COMMENT
)
