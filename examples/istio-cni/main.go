// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/meshcni/meshcni/examples/internal/ambientplugin"
	"github.com/meshcni/meshcni/interception/plugin"
	"github.com/meshcni/meshcni/interception/plugin/exhaustion"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/version"
)

func main() {
	hook := ambientplugin.Hook{}
	plugin.Main(plugin.Options{
		Name:       "istio-cni",
		About:      "CNI plugin istio-cni of meshcni",
		Version:    version.String(),
		Mesh:       sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"},
		Answered:   exhaustion.Answered,
		Dataplanes: dataplanes, // depend on the build tag iptables
		OtherBuild: plugin.OtherBuild{
			Name:   "the build with the Go tag iptables",
			Remedy: "install bin/istio-cni-iptables, which make build makes, as istio-cni",
		},
		Before:    hook.Before,
		Deleted:   hook.Deleted,
		Ambient:   true,
		Installer: "install-cni",
		Uninstall: "run install-cni uninstall on this node, with the mounts of the node agent (docs/operations.md, Uninstalling)",
	})
}
