// SPDX-License-Identifier: Apache-2.0

package interception

import "fmt"

// Set is an object of a plan: a named set of prefixes of one family that rules refer to, in place of a rule for each member. It is
// fixed or live: the members of a fixed set belong to the plan and its fingerprint; those of a live one are edited one by one
// while the plan stands, and survive its being applied again.
type Set struct {
	// Name is unique in the plan.
	Name SetName
	// Family is the family of all members.
	Family Family
	// Live makes the set live. Members is then empty.
	Live bool
	// Members are the contents of a fixed set.
	Members PrefixSet
	// Why is the constant reason for the set.
	Why string
	// From is the provenance of the members.
	From []Source
}

// SetRef refers to a [Set] of the same plan. [Builder.Set] makes it.
type SetRef struct {
	// Name is the set's name.
	Name SetName
	// Family is the set's family; it becomes the family of a rule that refers to it.
	Family Family
}

// IsEmpty reports whether the reference is the zero value, which refers to nothing.
func (r SetRef) IsEmpty() bool { return r.Name == "" }

// String is "@" and the set's name, as nft writes it.
func (r SetRef) String() string { return "@" + string(r.Name) }

func (s Set) text() string {
	if s.Live {
		return fmt.Sprintf("set %s %s live", s.Name, s.Family)
	}
	return fmt.Sprintf("set %s %s: %s", s.Name, s.Family, s.Members)
}
