// SPDX-License-Identifier: Apache-2.0

package netfacts_test

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
)

// factsAt reads the facts for CNI_NETNS, as a CNI plugin does before it plans.
func factsAt(path string) (interception.Facts, error) {
	ns, err := interception.OpenNetns(path, interception.NetnsOptions{})
	if err != nil {
		return interception.Facts{}, err
	}
	defer ns.Close()
	return netfacts.Read(ns)
}

func ExampleRead() {
	_, err := factsAt("/var/run/netns/gone")
	fmt.Println(errors.Is(err, fs.ErrNotExist) || errors.Is(err, interception.ErrUnsupported))
	// Output: true
}
