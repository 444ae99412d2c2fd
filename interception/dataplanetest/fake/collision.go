// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"

	"github.com/meshcni/meshcni/interception"
)

// collision returns an error about a route or a policy rule of the call's plan in whose place
// another owner has a different one. One that is the same serves both owners.
func collision(owners map[interception.Owner][]interception.Object, call Call) error {
	if call.Plan == nil {
		return nil
	}
	for owner, objects := range owners {
		if owner == call.Owner {
			continue
		}
		for _, object := range objects {
			for _, wanted := range call.Plan.Objects {
				have, want := claimOf(object), claimOf(wanted)
				if want.place != "" && have.place == want.place && !apart(object, wanted) && !reflect.DeepEqual(have.value, want.value) {
					return &interception.ApplyError{At: string(want.id), Why: want.why, Err: fmt.Errorf(
						"%s of %s is in its place: %w", have.place, owner, fs.ErrExist)}
				}
			}
		}
	}
	return nil
}

// apart reports whether both are policy rules that no packet meets together, by their prefixes and
// links: then their order does not matter.
func apart(one, other interception.Object) bool {
	a, ok := one.(interception.PolicyRule)
	b, both := other.(interception.PolicyRule)
	if !ok || !both {
		return false
	}
	disjoint := func(p, q netip.Prefix) bool { return p.IsValid() && q.IsValid() && !p.Overlaps(q) }
	return disjoint(a.Source, b.Source) || disjoint(a.Destination, b.Destination) || a.In != "" && b.In != "" && a.In != b.In
}

// claim is a place of which a kernel has one, and what an object puts there.
type claim struct {
	place string // "" for an object that leaves room for others
	value any    // without what the kernel does not have
	id    interception.RuleID
	why   string
}

func claimOf(object interception.Object) claim {
	switch o := object.(type) {
	case interception.Route:
		c := claim{place: fmt.Sprintf("a route to %s in table %d", o.Destination, o.Table), id: o.ID, why: o.Why}
		o.ID, o.Why, o.From = "", "", nil
		c.value = o
		return c
	case interception.PolicyRule:
		c := claim{place: fmt.Sprintf("a policy rule of %s with priority %d", o.Family, o.Priority), id: o.ID, why: o.Why}
		o.ID, o.Why, o.From = "", "", nil
		c.value = o
		return c
	}
	return claim{}
}
