// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// NewScratch returns a new network namespace with only a loopback interface, which is down. The
// namespace has no name and no process, and ends with Close. It needs CAP_SYS_ADMIN in the
// process's user namespace, and a /proc file system. On systems other than Linux the error wraps
// [interception.ErrUnsupported].
func NewScratch() (*interception.Netns, error) {
	file, err := namespace.New()
	if err != nil {
		return nil, err
	}
	return interception.NetnsFromFile(file, interception.NetnsOptions{})
}
