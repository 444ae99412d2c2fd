// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// Read finds out the facts about ns. On other systems than Linux the error wraps [interception.ErrUnsupported]; for a nil or zero ns
// it is [interception.ErrNotNetns]; otherwise it is about /proc/sys/net, which has to be there.
func Read(ns *interception.Netns) (interception.Facts, error) {
	if ns == nil || ns.File() == nil {
		return interception.Facts{}, fmt.Errorf("read facts: no network namespace was given: %w", interception.ErrNotNetns)
	}
	facts, err := read(ns.File())
	if err != nil {
		return interception.Facts{}, fmt.Errorf("read facts of %s: %w; run as root, with all of /proc mounted", ns, err)
	}
	return facts, nil
}
