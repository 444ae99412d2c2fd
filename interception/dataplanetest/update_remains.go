// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
)

// remains is what a killed process has left, as states that each belong to one plan, though
// possibly broken: the result of each dataplane's Observe, with duplicate tables split off.
type remains []interception.State

// remains observes the rules in place.
func (u *updating) remains() remains {
	var all remains
	for _, d := range u.dataplanes {
		state, err := d.Observe(u.Context(), u.ns, updateOwner)
		if err != nil {
			u.Fatal(err)
		}
		if one := apart(state); all.String() != one.String() { // else both dataplanes see the same
			all = append(all, one...)
		}
	}
	return all
}

// apart moves the second table of a kind, which exists beside the first, to a state of its own.
func apart(state interception.State) remains {
	first, second := state, interception.State{Owner: state.Owner}
	first.Objects = nil
	seen, twice := map[interception.TableKind]bool{}, false
	for _, object := range state.Objects {
		table, is := object.(interception.Table)
		if is && seen[table.Kind] {
			second.Objects, twice = append(second.Objects, object), true
			continue
		}
		first.Objects = append(first.Objects, object)
		if is {
			seen[table.Kind] = true
		} else { // objects before the rules are in both states
			second.Objects = append(second.Objects, object)
		}
	}
	if !twice {
		return remains{first}
	}
	return remains{first, second}
}

// inPlace returns the name of the plan of a way if exactly that plan is in place; else "".
func (r remains) inPlace(old, next updatePlan) string {
	var found []string
	for _, state := range r {
		switch {
		case len(rulesOf(state)) == 0:
		case interception.Diff(next.Plan, state) == nil:
			found = append(found, "the new plan")
		case interception.Diff(old.Plan, state) == nil:
			found = append(found, "the old plan")
		default:
			found = append(found, "", "")
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// rulesOf returns the tables and sets of a state.
func rulesOf(s interception.State) []interception.Object {
	return slices.DeleteFunc(slices.Clone(s.Objects), func(o interception.Object) bool {
		switch o.(type) {
		case interception.Table, interception.Set:
			return false
		}
		return true
	})
}

// String distinguishes remains.
func (r remains) String() string {
	var b strings.Builder
	for _, state := range r {
		fmt.Fprintf(&b, "%s%v\n", state.Plan(), state.Deviations)
	}
	return b.String()
}

// passes returns what bypasses the proxy though both plans capture it; "" if nothing does. With two
// dataplanes, the rules of each are next to those of the other, in either order.
func (r remains) passes(plans ...*interception.Plan) (string, error) {
	for i, state := range r {
		beside := r.beside(i)
		world := proof.World(slices.Concat(plans, []*interception.Plan{state.Plan()}, beside)...)
		world.Namespaces[0].Plans = beside
		found, err := covers(state, plans, world)
		if found != "" || err != nil {
			return found, err
		}
	}
	return "", nil
}

func covers(state interception.State, plans []*interception.Plan, world trace.World) (string, error) {
	found, err := proof.Covers(state, plans, proof.Options{World: world})
	if err != nil || found.Answer == proof.Yes {
		return "", err
	}
	return found.String(), nil
}

// beside returns the rules of the other dataplanes.
func (r remains) beside(i int) []*interception.Plan {
	var plans []*interception.Plan
	for j, state := range r {
		if j != i {
			other := state.Plan()
			other.Objects = rulesOf(interception.State{Objects: other.Objects})
			plans = append(plans, other)
		}
	}
	return plans
}
