// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// members are what is asked about live sets: each question whether an address is in one has a variable of its own.
type members struct {
	known []trace.LiveSet
	asked []membership
}

type membership struct {
	owner interception.Owner
	set   interception.SetName
	of    address
}

// liveMember is where the address is in the live set: as the world says, else as a variable does.
func (e *engine) liveMember(owner interception.Owner, set interception.SetName, a address) ref {
	for _, l := range e.members.known {
		if l.Owner == owner && l.Name == set {
			return e.within(a, l.Members)
		}
	}
	question := membership{owner, set, a}
	for i, m := range e.members.asked {
		if m == question {
			return e.variable(e.live.level(i))
		}
	}
	if len(e.members.asked) == maxLive {
		if e.err == nil {
			e.err = fmt.Errorf("%w: live sets are asked about more than %d addresses", ErrTooLarge, maxLive)
		}
		return never
	}
	e.members.asked = append(e.members.asked, question)
	return e.variable(e.live.level(len(e.members.asked) - 1))
}

// consistent is where addresses that are the same are in the same live sets.
func (q question) consistent(m *members) ref {
	all := always
	for i, a := range m.asked {
		for j, b := range m.asked[:i] {
			if a.owner == b.owner && a.set == b.set {
				same := q.iff(q.variable(q.live.level(i)), q.variable(q.live.level(j)))
				all = q.and(all, q.ite(q.sameAddress(a.of, b.of), same, always))
			}
		}
	}
	return all
}
