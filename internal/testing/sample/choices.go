// SPDX-License-Identifier: Apache-2.0

package sample

import "math/rand/v2"

// Choices makes every random decision: it returns a number from 0 to n-1, from a random source or a
// fuzzer's input.
type Choices func(n int) int

// Seeded returns Choices that depend only on the seed.
func Seeded(seed uint64) Choices { return rand.New(rand.NewPCG(seed, 0)).IntN }

// FromBytes takes the decisions from data, and 0 after its end.
func FromBytes(data []byte) Choices {
	return func(n int) int {
		if len(data) == 0 {
			return 0
		}
		first := data[0]
		data = data[1:]
		return int(first) % n
	}
}

// Pick returns one of the elements.
func Pick[T any](c Choices, from ...T) T { return from[c(len(from))] }
