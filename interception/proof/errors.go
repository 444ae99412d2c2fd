// SPDX-License-Identifier: Apache-2.0

package proof

import "errors"

// The errors that callers may want to tell apart, with errors.Is. For an invalid plan, errors.Is(err, interception.ErrPlan) holds, for
// an invalid world, errors.Is(err, trace.ErrWorld).
var (
	// ErrTooLarge means that the answer would take more memory than Options.MaxNodes grants. It is no answer in disguise.
	ErrTooLarge = errors.New("too large to decide")
	// ErrQuery means that a query cannot be understood.
	ErrQuery = errors.New("invalid query")
)
