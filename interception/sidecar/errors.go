// SPDX-License-Identifier: Apache-2.0

package sidecar

import "errors"

// The errors that callers may want to tell apart, with errors.Is. What is wrong with a pod is an [interception.ParseError].
var (
	// ErrDialect means that a [Dialect] is refused: it is the mesh's mistake, and not the pod's.
	ErrDialect = errors.New("invalid dialect")
	// ErrRedirect means that a [Redirect] contradicts itself.
	ErrRedirect = errors.New("invalid redirect")
)
