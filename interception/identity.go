// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// UID is a numeric user id as the pod's own user namespace sees it. Names are never resolved: the node's user database says
// nothing about a pod.
type UID uint32

// GID is a numeric group id, like [UID].
type GID uint32

// UIDSet is a set of user ids; the zero value is empty.
type UIDSet = RangeSet[UID]

// GIDSet is a set of group ids; the zero value is empty.
type GIDSet = RangeSet[GID]

// UIDs is the set of the given user ids.
func UIDs(ids ...UID) UIDSet { return numbers(ids) }

// GIDs is the set of the given group ids.
func GIDs(ids ...GID) GIDSet { return numbers(ids) }

// ParseGIDSet reads a list of decimal group ids separated by commas. Blanks around the list and its elements are ignored, and an empty
// list is the empty set. A name is an error that says why it cannot be taken.
func ParseGIDSet(list string) (GIDSet, error) {
	list = strings.TrimSpace(list)
	if list == "" {
		return GIDSet{}, nil
	}
	var ids []GID
	for element := range strings.SplitSeq(list, ",") {
		element = strings.TrimSpace(element)
		if element == "" {
			return GIDSet{}, errors.New("an element of the list is empty: remove the extra comma")
		}
		id, err := strconv.ParseUint(element, 10, 32)
		if err != nil {
			return GIDSet{}, fmt.Errorf("%q is not a group id: write numbers, as the node's group names mean nothing in a pod", element)
		}
		ids = append(ids, GID(id))
	}
	return GIDs(ids...), nil
}
