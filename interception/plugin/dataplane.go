// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"

	"github.com/meshcni/meshcni/interception"
)

// Of the plugin there are two builds, which differ in newDataplane and programIsMissing: dataplane_nftables.go is in
// the one that is small, and dataplane_iptables.go in the one with the Go tag iptables.

// errBuild is in the error for rules of iptables, in the build that lacks them.
var errBuild = errors.New("it takes the build with the Go tag iptables")

// buildRemedy is what to do about it.
const buildRemedy = "install bin/istio-cni-iptables, which make build makes, as " + pluginName + ", or set dataplane to nftables"

// telling is a dataplane that tells when it has applied a plan.
type telling struct {
	interception.Dataplane
	applied func()
}

// Apply is that of the dataplane.
func (t telling) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	err := t.Dataplane.Apply(ctx, ns, p)
	if err == nil {
		t.applied()
	}
	return err
}
