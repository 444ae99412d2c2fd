// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import "errors"

var (
	// ErrNeedsSecondUID means that a probe's user or group id doesn't exist here: the tests run in a user namespace with a
	// single id, because their user has no subordinate ids (subuid(5)) or newuidmap(1) is not installed.
	ErrNeedsSecondUID = errors.New("needs a second uid")
	// ErrProbe means that a [Probe] makes no sense.
	ErrProbe = errors.New("invalid probe")
)
