// SPDX-License-Identifier: Apache-2.0

//go:build !iptables

package plugin

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// programIsMissing reports whether an error is about a program that the node doesn't have: nftables need none.
func programIsMissing(error) bool { return false }

// newDataplane makes the dataplane of a setting (pluginconf.Dataplanes), which tells its name when it has applied a plan.
func newDataplane(setting string, applied func(name string)) (interception.Dataplane, error) {
	if setting == pluginconf.IPTables {
		return nil, fmt.Errorf("this build of %s has no iptables: %w", pluginName, errBuild)
	}
	dataplane, err := nftables.New(nftables.Options{Foreign: true}) // CHECK tells of them
	return telling{dataplane, func() { applied(pluginconf.NFTables) }}, err
}
