// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// intrusions are errors about routes of other programs in the mesh's own tables, by namespace. The
// agent leaves them alone.
type intrusions map[string]error

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
		i[key] = fmt.Errorf("%w: in %s, another program has added to a routing table of the mesh: %s: remove it, and have that program use "+
			"another table", ErrClash, in, strings.Join(routes, "; "))
	}
}

// err returns one of the errors; nil if there is none.
func (i intrusions) err() error {
	for _, err := range i {
		return err
	}
	return nil
}
