// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"math/rand/v2"
	"slices"
)

// corner is a plan that stands, and the dataplane that has put it in place, by their numbers.
type corner struct{ by, plan int }

// way is an update from what stands to what shall.
type way struct{ from, to corner }

// circuit goes every way between plans once, each beginning where the one before ends (Hierholzer's algorithm): as many lead to each corner as
// lead from it. With one dataplane these are the ways between different plans; with two, those between any plans by the one
// and the other.
func circuit(dataplanes, plans int, random *rand.Rand) []way {
	left := map[corner][]corner{}
	for _, from := range corners(dataplanes, plans) {
		for _, to := range corners(dataplanes, plans) {
			if dataplanes == 1 && from != to || from.by != to.by {
				left[from] = append(left[from], to)
			}
		}
		random.Shuffle(len(left[from]), func(i, j int) { left[from][i], left[from][j] = left[from][j], left[from][i] })
	}
	open, visited := []corner{{}}, []corner(nil)
	for len(open) > 0 {
		at := open[len(open)-1]
		if next := left[at]; len(next) > 0 {
			open, left[at] = append(open, next[0]), next[1:]
			continue
		}
		open, visited = open[:len(open)-1], append(visited, at)
	}
	slices.Reverse(visited)
	var ways []way
	for i := range len(visited) - 1 {
		ways = append(ways, way{visited[i], visited[i+1]})
	}
	return ways
}

func corners(dataplanes, plans int) []corner {
	var all []corner
	for by := range dataplanes {
		for plan := range plans {
			all = append(all, corner{by, plan})
		}
	}
	return all
}
