// SPDX-License-Identifier: Apache-2.0

package repair

// Size returns how many limits, owners and pods the budget remembers.
func (b Budget) Size() int { return len(b.used) }
