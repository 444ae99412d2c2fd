// SPDX-License-Identifier: Apache-2.0

package trace

import "errors"

// The errors of [Trace], to be told apart with errors.Is. They mean that the question makes no sense; whatever may befall a
// packet in a kernel is an [Outcome].
var (
	// ErrWorld means that the world could not exist. For an invalid plan in it, errors.Is(err, interception.ErrPlan) holds too.
	ErrWorld = errors.New("invalid world")
	// ErrPacket means that the packet could not exist in the world, or is of a kind that is not traced.
	ErrPacket = errors.New("invalid packet")
)
