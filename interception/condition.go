// SPDX-License-Identifier: Apache-2.0

package interception

// Operand is what a condition compares with: a set of values, of the types of this package.
type Operand interface {
	PortSet | PrefixSet | InterfaceSet | UIDSet | GIDSet | SetRef | MarkBits | ConnState | TCPFlags

	IsEmpty() bool
	String() string
}

// Condition is a test of one field of a packet: that it is in a set ([Is]), or that it has a value which is not ([Not]). The
// zero value tests nothing. [Build] refuses a condition with an empty set, so that a list which turned out empty never
// widens a rule into one that matches everything.
type Condition[S Operand] struct {
	set     S
	present bool
	negated bool
}

// Is is the condition that the field is a member of set.
func Is[S Operand](set S) Condition[S] { return Condition[S]{set: set, present: true} }

// Not is the condition that the field is there and not a member of set. A packet without the field (no owner, say) does
// not meet it.
func Not[S Operand](set S) Condition[S] { return Condition[S]{set: set, present: true, negated: true} }

// Present reports whether there is something to test; it is false for the zero value only.
func (c Condition[S]) Present() bool { return c.present }

// Negated reports whether the condition was made by [Not].
func (c Condition[S]) Negated() bool { return c.negated }

// Set is what the field is compared with.
func (c Condition[S]) Set() S { return c.set }

// text renders the condition behind the name of its field; nothing when there is nothing to test.
func (c Condition[S]) text(field string) []string {
	switch {
	case !c.present:
		return nil
	case c.negated:
		return []string{field + " != " + c.set.String()}
	default:
		return []string{field + " " + c.set.String()}
	}
}
