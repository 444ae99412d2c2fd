// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// NewScratch makes a network namespace with nothing in it but a loopback interface that is down. It has no name and no process, and ends
// when it is closed. It takes CAP_SYS_ADMIN in the user namespace that the process is in, and a /proc file system. On other systems than
// Linux the error wraps [interception.ErrUnsupported].
func NewScratch() (*interception.Netns, error) {
	file, err := namespace.New()
	if err != nil {
		return nil, err
	}
	return interception.NetnsFromFile(file, interception.NetnsOptions{})
}
