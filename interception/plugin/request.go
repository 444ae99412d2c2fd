// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// Request is a call that [Options].Before is asked about, which is the ADD of a pod, or the CHECK
// of a pod whose ADD left no record; or the DEL that [Options].Deleted is told of.
type Request struct {
	// Command is ADD, CHECK or DEL.
	Command string
	// Pod has the namespace, name and UID by which the runtime names the pod. The UID may be empty.
	Pod podsource.Ref
	// Attachment is the container, the network and the interface.
	Attachment journal.Attachment
	// Netns is the path of the pod's network namespace. In DEL it may be empty.
	Netns string
	// Config is the plugin's entry with the defaults filled in. Its PrevResult is the result of the
	// plugins before this one, and its RuntimeConfig has the pod's annotations if the runtime passes
	// them.
	Config pluginconf.Config
	// Log is the log of the call, which the node agent gets. It names the container and the pod.
	Log *slog.Logger
}

// OpenNetns opens the pod's network namespace, and refuses the host's and the plugin's own. The
// caller closes it. The error is an [*Error] with a code of the plugin, which Before may return.
func (r Request) OpenNetns() (*interception.Netns, error) {
	ns, err := interception.OpenNetns(r.Netns, interception.NetnsOptions{ProcRoot: r.Config.ProcRoot})
	if err != nil {
		failure := netnsFailure(r.Pod, r.Netns, err)
		failure.own = true
		return nil, failure
	}
	return ns, nil
}

// Addresses returns the pod's addresses in Config.PrevResult, without those of interfaces that are
// outside of a container; none without a PrevResult. The error is as that of OpenNetns.
func (r Request) Addresses() ([]netip.Addr, error) {
	addresses, err := addressesIn(r.Config.PrevResult, r.Config.CNIVersion)
	if err != nil {
		failure := resultFailure("this one", err)
		failure.own = true
		return nil, failure
	}
	return addresses, nil
}

// askBefore asks [Options].Before about a pod, unless the configuration is refused. The only
// decision possible is to leave the pod alone.
func (c *call) askBefore(ctx context.Context, r *Request) (_ sidecar.Decision, decided bool, _ error) {
	if r.Config.AmbientEnabled && !c.Ambient {
		return sidecar.Decision{}, false, c.ambientFailure(r.Pod)
	}
	if c.Before == nil {
		return sidecar.Decision{}, false, nil
	}
	decision, decided, err := c.Before(ctx, *r)
	switch {
	case err != nil:
		return sidecar.Decision{}, false, c.beforeFailure(r.Pod, err)
	case decided && decision.Capture:
		err = errors.New("it decided to capture the pod, and Before can only leave one alone")
	case decided && decision.Reason == "":
		err = errors.New("it decided to leave the pod alone, and gave no reason")
	default:
		return decision, decided, nil
	}
	return sidecar.Decision{}, false, &Error{
		Code: types.ErrInternal, Step: "decide about pod " + r.Pod.String(), Err: err,
		Remedy: "this is a defect of " + c.Name + ", in the function Before of its options: please report it",
	}
}

// ambientFailure refuses ambient_enabled, with which pods without a sidecar would bypass the mesh.
func (c *call) ambientFailure(ref podsource.Ref) error {
	remedy := "set ambient_enabled to false, or exclude the namespaces that have no sidecars with exclude_namespaces"
	if c.AmbientRemedy != "" {
		remedy += "; " + c.AmbientRemedy
	}
	return &Error{
		Code: types.ErrUnsupportedField, Step: "decide about pod " + ref.String(),
		Err:    errors.New("ambient_enabled is true, and this plugin has no ambient mode: the pod's traffic might bypass the mesh"),
		Remedy: remedy,
	}
}

// The codes from firstPluginCode on are this package's, and those from firstOwnCode on a mesh's
// own.
const (
	firstPluginCode = 100
	firstOwnCode    = 200
)

// beforeFailure returns an error of [Options].Before in the form for the runtime.
func (c *call) beforeFailure(ref podsource.Ref, err error) error {
	f := Error{Code: types.ErrInternal, Step: "decide about pod " + ref.String(), Err: err}
	if own := (*Error)(nil); errors.As(err, &own) {
		f = *own
	}
	if f.Code == 0 || !f.own && f.Code >= firstPluginCode && f.Code < firstOwnCode {
		f.Code = types.ErrInternal
	}
	f.Remedy = cmp.Or(f.Remedy, "the container runtime tries again to start the pod; if it fails again, see the node agent's log, "+
		"and report it to those who make "+c.Name)
	return &f
}
