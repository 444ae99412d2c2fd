// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// Read returns the facts about ns. On systems other than Linux the error wraps
// [interception.ErrUnsupported]; for a nil or zero ns it wraps [interception.ErrNotNetns]. Any
// other error is about /proc/sys/net, which must be mounted.
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
