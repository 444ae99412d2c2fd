// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// Verb is which method was called.
type Verb string

// The verbs.
const (
	Apply   Verb = "Apply"
	Remove  Verb = "Remove"
	Observe Verb = "Observe"
)

// Call is one call of the dataplane.
type Call struct {
	// Verb is the method, and N counts its calls from 1.
	Verb Verb
	N    int
	// Netns is the namespace; zero when the handle could not be used.
	Netns interception.NetnsID
	// Owner is whose plan it was about.
	Owner interception.Owner
	// Plan is the plan to be applied; nil but for Apply.
	Plan *interception.Plan
	// Err is what the call returned, less the words around it; it is nil in what [Options].Before and After see.
	Err error
}

// String is the call in one line, such as "Apply 2: istio-cni in net:[1]: error".
func (c Call) String() string {
	text := fmt.Sprintf("%s %d: %s in net:[%d]", c.Verb, c.N, c.Owner, c.Netns.Inode)
	if c.Err != nil {
		text += ": " + c.Err.Error()
	}
	return text
}

// Nth fails the n-th call of a method, counted from 1, with err, and no other: for [Options].Before and After.
func Nth(verb Verb, n int, err error) func(Call) error {
	return func(c Call) error {
		if c.Verb == verb && c.N == n {
			return err
		}
		return nil
	}
}
