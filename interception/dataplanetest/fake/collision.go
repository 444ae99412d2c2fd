// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"

	"github.com/meshcni/meshcni/interception"
)

// collision returns an error about a route or a policy rule of the call's plan in whose place, or
// in whose own routing table, another owner has a different one. One that is the same serves both
// owners.
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
				if where := obstructs(object, wanted, call.Plan); where != "" {
					have, want := claimOf(object), claimOf(wanted)
					return &interception.ApplyError{At: string(want.id), Why: want.why, Err: fmt.Errorf(
						"%s of %s is in its %s: %w", have.place, owner, where, fs.ErrExist)}
				}
			}
		}
	}
	return nil
}

// obstructs returns "place" or "table" for another owner's object that is in the way of one of the
// plan, else "".
func obstructs(other, wanted interception.Object, p *interception.Plan) string {
	have, want := claimOf(other), claimOf(wanted)
	if want.place != "" && have.place == want.place && !apart(other, wanted) && !reflect.DeepEqual(have.value, want.value) {
		return "place"
	}
	foreign, isRoute := other.(interception.Route)
	if r, is := wanted.(interception.Route); is && isRoute && sharesTable(r, foreign) && crowds(foreign, p.Objects) {
		return "table"
	}
	return ""
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
		c := claim{place: fmt.Sprintf("a route to %s with metric %d in table %d", o.Destination, o.EffectiveMetric(), o.Table), id: o.ID, why: o.Why}
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
