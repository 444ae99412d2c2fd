// SPDX-License-Identifier: Apache-2.0

package interception

// State is what a network namespace really holds, decoded into the model of plans. A [Dataplane] observes it.
type State struct {
	// Owner is whose objects they are.
	Owner Owner
	// Objects are the owner's, in the order that [Build] gives a plan. Ids and reasons are those of the kernel's comments, and no
	// proof of anything; provenance is lost. What cannot be decoded has the action [Opaque].
	Objects []Object
	// Foreign are the chains of others that hooks lead to, when they were asked for: they change outcomes too.
	Foreign []ForeignChain
}

// ForeignChain is a base chain of somebody else, with all that it calls.
type ForeignChain struct {
	// Name says where it is, such as "ip nat PREROUTING".
	Name string
	// Family is the packets' family.
	Family Family
	// Hook and Priority are when it is asked.
	Hook     Hook
	Priority int32
	// Table is what the chain may do: NAT, or Filter for anything else.
	Table TableKind
	// Rules are the chain's, in order.
	Rules []Rule
}

// Opaque stands in an observed rule for what could not be decoded. No plan has it.
type Opaque struct {
	// Text is what the kernel holds, as far as it is known.
	Text string
}

// String is "opaque: " and the text.
func (a Opaque) String() string { return "opaque: " + a.Text }

func (Opaque) action() {}
