// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// idMap are the ids that a user namespace has (user_namespaces(7), uid_map).
type idMap []idRange

type idRange struct{ first, count uint64 }

func parseIDMap(text string) idMap {
	var m idMap
	for line := range strings.Lines(text) {
		var inside, outside, count uint64
		if n, err := fmt.Sscan(line, &inside, &outside, &count); n == 3 && err == nil {
			m = append(m, idRange{inside, count})
		}
	}
	return m
}

func (m idMap) has(id uint32) bool {
	for _, r := range m {
		if uint64(id) >= r.first && uint64(id)-r.first < r.count {
			return true
		}
	}
	return false
}

// unmapped is the error about the first condition on an id that the user namespace of the programs does not have, which the kernel refuses
// without a word; nil when there is none.
func unmapped(p *interception.Plan, users, groups idMap) error {
	check := func(at interception.RuleID, why string, m interception.Match) error {
		id, kind := missingID(users, m.UID.Set()), "user"
		if id == nil {
			id, kind = missingID(groups, m.GID.Set()), "group"
		}
		if id == nil {
			return nil
		}
		return &interception.ApplyError{At: string(at), Why: why, Err: fmt.Errorf(
			"%w: %s %d has no number in the user namespace of iptables: map it, or use nftables", interception.ErrUnsupported, kind, *id)}
	}
	for t := range p.Tables() {
		for _, e := range t.Entries {
			if err := check(e.ID, e.Why, e.Match); err != nil {
				return err
			}
		}
	}
	for _, r := range p.Rules() {
		if err := check(r.ID, r.Why, r.Match); err != nil {
			return err
		}
	}
	return nil
}

// missingID is the first end of a range that is not mapped.
func missingID[T ~uint32](m idMap, ids interception.RangeSet[T]) *uint32 {
	for _, r := range ids.Ranges() {
		for _, id := range []uint32{uint32(r.First), uint32(r.Last)} {
			if !m.has(id) && id != ^uint32(0) {
				return &id
			}
		}
	}
	return nil
}
