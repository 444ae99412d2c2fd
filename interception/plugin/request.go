// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// Request is the ADD of a pod, or a CHECK of one that no ADD has recorded.
type Request struct {
	// Command is ADD or CHECK.
	Command string
	// Pod is what the runtime calls the pod.
	Pod podsource.Ref
	// Attachment is the container, the network and the interface.
	Attachment journal.Attachment
	// Netns is the path of the pod's network namespace.
	Netns string
	// Config is the plugin's configuration, with defaults filled in, the result of the plugins before, and the pod's annotations where the
	// runtime passes them.
	Config pluginconf.Config
}

// refuseAmbient stands in for a missing [Options].Before.
func refuseAmbient(_ context.Context, r Request) (sidecar.Decision, bool, error) {
	if !r.Config.AmbientEnabled {
		return sidecar.Decision{}, false, nil
	}
	return sidecar.Decision{}, false, &Error{
		Code: types.ErrUnsupportedField, Step: "decide about pod " + r.Pod.String(),
		Err: errors.New("ambient_enabled is true, and this plugin has no ambient mode: the pod's traffic might pass the mesh by"),
		Remedy: "set ambient_enabled to false, or exclude the namespaces that have no sidecars with exclude_namespaces; " +
			"for ambient mode use Istio's own plugin",
	}
}
