// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net"
	"os"

	"github.com/meshcni/meshcni/internal/namespace"
)

// lookForInterfaces returns an error unless a network namespace has all interfaces of these names.
func lookForInterfaces(path string, names []string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // the file is only entered
	return namespace.Run(file, func() error {
		for _, name := range names {
			if _, err := net.InterfaceByName(name); err != nil {
				return fmt.Errorf("interface %s of prevResult: %w", name, err)
			}
		}
		return nil
	})
}
