// SPDX-License-Identifier: Apache-2.0

package rendercheck

import (
	"hash/fnv"
	"math/rand/v2"

	"github.com/meshcni/meshcni/interception"
)

// PlanOf is the plan that some bytes stand for: a random one of which each byte decides a choice, spoilt in places, so that it may be
// valid or not. It is for fuzzing.
func PlanOf(data []byte) (*interception.Plan, error) {
	hash := fnv.New64a()
	_, _ = hash.Write(data)
	r := rand.New(&byteSource{data, rand.NewPCG(hash.Sum64(), 0)})
	spoils := r.IntN(4)
	plan, err := RandomPlan(r)
	if err != nil {
		return nil, err
	}
	for range spoils {
		spoil(planner{Rand: r}, plan)
	}
	return plan, nil
}

// byteSource makes the highest bits of its numbers, which decide small choices, from bytes; when these are used up, at random.
type byteSource struct {
	data []byte
	rest rand.Source
}

// Uint64 is the next number.
func (s *byteSource) Uint64() uint64 {
	n := s.rest.Uint64()
	if len(s.data) > 0 {
		n = n>>8 | uint64(s.data[0])<<56
		s.data = s.data[1:]
	}
	return n
}
