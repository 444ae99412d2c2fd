// SPDX-License-Identifier: Apache-2.0

package interception

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
