// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// errIntruder is wrapped by an error about something of another program that the agent leaves alone
// beside its own rules.
var errIntruder = errors.New("the rules stand")

// intrusions are errors about routes of other programs in the mesh's own tables, by namespace, and
// about what else other programs use of the mesh's on the host (clashKey).
type intrusions map[string]error

const clashKey = "clash"

// note notes what was seen in a namespace.
func (i intrusions) note(key string, in *interception.Netns, seen interception.State) {
	delete(i, key)
	var routes []string
	for _, d := range seen.Deviations {
		if d.Foreign {
			routes = append(routes, d.Got)
		}
	}
	if len(routes) > 0 {
		i[key] = fmt.Errorf("%w: %w: in %s, another program has added to a routing table of the mesh: %s: remove it, and have that "+
			"program use another table", errIntruder, ErrClash, in, strings.Join(routes, "; "))
	}
}

// err returns the errors; nil if there is none.
func (i intrusions) err() error {
	var all []error
	for _, key := range slices.Sorted(maps.Keys(i)) {
		all = append(all, i[key])
	}
	return errors.Join(all...)
}
