// SPDX-License-Identifier: Apache-2.0

package interception

// State is what a network namespace holds, in the model of plans, for [Diff] to compare with one. Whoever reads the kernel fills it in;
// no dataplane of this module does so yet.
type State struct {
	// Owner is whose objects they are.
	Owner Owner
	// Objects are the owner's, in the order that [Build] gives a plan. Ids and reasons are those of the kernel's comments, and no
	// proof of anything; provenance is lost. What cannot be decoded has the action [Opaque].
	Objects []Object
}

// Opaque stands in an observed rule for what could not be decoded. No plan has it.
type Opaque struct {
	// Text is what the kernel holds, as far as it is known.
	Text string
}

// String is "opaque: " and the text.
func (a Opaque) String() string { return "opaque: " + a.Text }

func (Opaque) action() {}
