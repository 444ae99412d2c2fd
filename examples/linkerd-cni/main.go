// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/plugin"
	"github.com/meshcni/meshcni/interception/plugin/exhaustion"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/version"
)

// owner owns the rules.
const owner interception.Owner = "linkerd-cni"

func main() {
	plugin.Main(plugin.Options{
		Name:       "linkerd-cni",
		About:      "CNI plugin linkerd-cni of meshcni",
		Version:    version.String(),
		Mesh:       sidecar.Mesh{Dialect: dialect(), Owner: owner},
		Answered:   exhaustion.Answered,
		Dataplanes: dataplanes,
	})
}

// dataplanes returns nftables alone. Package standard adds iptables, for nodes whose kernel lacks
// nf_tables.
func dataplanes() ([]choice.Candidate, error) {
	// CHECK reports the rules of other programs.
	native, err := nftables.New(nftables.Options{Foreign: true})
	return []choice.Candidate{{Name: choice.NFTables, Dataplane: native}}, err
}
