// SPDX-License-Identifier: Apache-2.0

package interception

import "fmt"

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

// ParseUIDSet reads a list of decimal user ids and ranges of them, separated by commas, as [ParsePortSet] reads ports; "*" alone is the set
// of all. A name is an error that says why it cannot be taken.
func ParseUIDSet(list string) (UIDSet, error) { return ParseRangeSet(list, parseIDs[UID]("user")) }

// ParseGIDSet reads a list of group ids, as [ParseUIDSet] does.
func ParseGIDSet(list string) (GIDSet, error) { return ParseRangeSet(list, parseIDs[GID]("group")) }

func parseIDs[T UID | GID](kind string) func(element string) (Range[T], error) {
	return func(element string) (Range[T], error) {
		ids, err := parseRange[T](element)
		if err != nil {
			err = notAnID(element, kind)
		}
		return ids, err
	}
}

func notAnID(element, kind string) error {
	return fmt.Errorf("%q is not a %s id: write numbers, as the node's %[2]s names mean nothing in a pod", element, kind)
}
