// SPDX-License-Identifier: Apache-2.0

package interception

import "fmt"

// Mark is a packet's mark (SO_MARK, nfmark) or a connection's (connmark): 32 bits that rules and policy routing share.
type Mark uint32

// MarkBits are some bits of a mark: those of Mask, with the values they have in Value. The zero value names no bit. Bits of Value
// outside of Mask are refused by [Build].
type MarkBits struct {
	Value, Mask Mark
}

// WholeMark is the mark with all its 32 bits.
func WholeMark(value Mark) MarkBits { return MarkBits{value, ^Mark(0)} }

// IsEmpty reports whether no bit is named.
func (m MarkBits) IsEmpty() bool { return m.Mask == 0 }

// Matches reports whether a mark has the named bits with these values.
func (m MarkBits) Matches(mark Mark) bool { return mark&m.Mask == m.Value }

// Write is the mark with the named bits replaced by these values.
func (m MarkBits) Write(mark Mark) Mark { return mark&^m.Mask | m.Value }

// String is value and mask in hexadecimal, such as "0x539/0xff", and the value alone when the mask is whole.
func (m MarkBits) String() string {
	if m.Mask == ^Mark(0) {
		return fmt.Sprintf("0x%x", uint32(m.Value))
	}
	return fmt.Sprintf("0x%x/0x%x", uint32(m.Value), uint32(m.Mask))
}
