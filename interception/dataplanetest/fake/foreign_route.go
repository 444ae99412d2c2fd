// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// foreignRoutes returns the deviations of an owner: the routes of other owners in the routing
// tables that are its own, as those have a route of it.
func foreignRoutes(owners map[interception.Owner][]interception.Object, owner interception.Owner) []interception.Deviation {
	var deviations []interception.Deviation
	for _, other := range slices.Sorted(maps.Keys(owners)) {
		if other == owner {
			continue
		}
		for _, object := range owners[other] {
			if r, is := object.(interception.Route); is && crowds(r, owners[owner]) {
				text := fmt.Sprintf("route %s %s in table %d, of %s", r.Type, r.Destination, r.Table, other)
				deviations = append(deviations, interception.Deviation{At: "routes", Got: text, Foreign: true})
			}
		}
	}
	return deviations
}

// crowds reports whether a route of another owner is in a routing table of the objects' own, and is
// none of the objects.
func crowds(other interception.Route, objects []interception.Object) bool {
	shared := []interception.RoutingTable{0, 252, 253, 254, 255} // of the kernel and the administrator
	own := false
	for _, object := range objects {
		r, is := object.(interception.Route)
		if !is || !sharesTable(r, other) {
			continue
		}
		if reflect.DeepEqual(claimOf(r).value, claimOf(other).value) {
			return false
		}
		own = true
	}
	return own && !slices.Contains(shared, other.Table)
}

// sharesTable reports whether two routes are in the same routing table, of which each family has
// its own.
func sharesTable(one, other interception.Route) bool {
	return one.Table == other.Table && one.Destination.Addr().Is4() == other.Destination.Addr().Is4()
}
