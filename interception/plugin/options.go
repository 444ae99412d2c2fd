// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// Options say which mesh a plugin serves, and what it is linked with. Name, Mesh and Dataplanes are
// needed; everything else has a default.
type Options struct {
	// Name is the plugin's type in a CNI configuration, which is the file name of its binary. It is in
	// the plugin's messages, and in the names of its files in the run directory.
	Name string
	// About is what the plugin says, followed by its version, to a person who runs it. It is "CNI
	// plugin " and Name when empty.
	About string
	// Version names the build: it is recorded with the rules of each pod. It is the version of the
	// main module when empty.
	Version string
	// UserAgent names the plugin to the API server, which has it in its audit log; "meshcni" when
	// empty.
	UserAgent string

	// Mesh says which pods are captured, what their annotations mean, and whose rules they get. The
	// plugin's configuration completes the policy: exclude_namespaces adds to its ExcludeNamespaces,
	// pod_namespace and agent_name take the place of its AgentNamespace and AgentName. An empty
	// AgentName is Name followed by "-node". If AgentNamespace and pod_namespace are both empty, no
	// pod counts as the node agent's, and the plugin asks about the agent's own pod as about any
	// other: after a reboot, when neither agent nor kubeconfig is there yet, that pod could not start.
	Mesh sidecar.Mesh
	// Paths are where the node agent and its kubeconfig are, as long as a configuration doesn't say
	// so; [pluginconf.PathsOf] Name when zero.
	Paths pluginconf.Paths

	// Dataplanes returns what may write the rules: at least one candidate, the preferred one first. It
	// is called for pods that are captured, and for CHECK. The setting dataplane chooses the candidate
	// named [pluginconf.NFTables] or [pluginconf.IPTables]; a candidate of any other name is used only
	// with [pluginconf.Auto].
	Dataplanes func() ([]choice.Candidate, error)
	// OtherBuild is the build that has the dataplanes that this one lacks, for errors. The zero value
	// says that there is none.
	OtherBuild OtherBuild

	// Before, if not nil, decides about a pod before the plugin looks for a sidecar in it, for a mesh
	// that has pods without one. It is asked about each pod that [sidecar.Mesh.ByName] does not decide
	// about. The plugin leaves the pod alone if the second result is true, and goes on if it is false.
	//
	// The decision has a Reason, and never Capture: the plugin fails otherwise. The context ends
	// with the setting timeout. An error fails the command; an [*Error] gives it a remedy, and a
	// code, either of the CNI specification (below 100) or of your own (from 200 on). Any other
	// code is reported as an internal error (999), and so is an error of another type.
	Before func(context.Context, Request) (sidecar.Decision, bool, error)
	// Deleted, if not nil, is told of each DEL of a pod that [sidecar.Mesh.ByName] does not decide
	// about, once the pod's record is gone. The context ends soon, because the pod's end must not
	// wait: an error is only logged, and so is a panic. In the request, Netns may be empty or
	// missing, and Config is not validated.
	Deleted func(context.Context, Request) error
	// Ambient says that Before decides about the pods of an ambient mesh too. Otherwise the plugin
	// refuses a configuration with ambient_enabled, because it would leave those pods out of the mesh
	// in silence. AmbientRemedy is what else the operator can do then; it may be empty.
	Ambient       bool
	AmbientRemedy string

	// Answered, if not nil, receives the exit code as soon as the answer is on standard output; for
	// DEL, which has no answer, at the start. Package exhaustion has a function for it.
	Answered func(code int)

	// Installer is the program that puts the plugin on a node, and Uninstall is what to do on a node
	// that it no longer looks after. Errors name both. They are "its installer", and to take the
	// plugin's entry out of the CNI configuration, when empty.
	Installer, Uninstall string
}

// OtherBuild is a build of a plugin that links more dataplanes.
type OtherBuild struct {
	// Name says which, such as "the build with the Go tag iptables".
	Name string
	// Remedy is how to install it, such as "install bin/my-cni-iptables as my-cni".
	Remedy string
}

// Validate says what is wrong with the options, for a test of the mesh's plugin. [Main] calls it,
// too.
func (o *Options) Validate() error {
	var errs []error
	if filesystem.CheckNewName(o.Name) != nil {
		errs = append(errs, fmt.Errorf("the name is %q, and should be the file name of the plugin's binary, such as my-mesh-cni", o.Name))
	}
	if o.Dataplanes == nil {
		errs = append(errs, errors.New("there are no Dataplanes: return one of package nftables, or those of package standard"))
	}
	if o.Ambient && o.Before == nil {
		errs = append(errs, errors.New("there is no Before to decide about the pods of an ambient mesh, and Ambient says that there is"))
	}
	for _, err := range []error{o.Mesh.Validate(), o.Paths.Validate()} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("options of plugin %q: %w", o.Name, err)
	}
	return nil
}

// setDefaults fills in the defaults.
func (o *Options) setDefaults() {
	paths := pluginconf.PathsOf(o.Name)
	o.Paths.RunDir = cmp.Or(o.Paths.RunDir, paths.RunDir)
	o.Paths.Kubeconfig = cmp.Or(o.Paths.Kubeconfig, paths.Kubeconfig)
	o.About = cmp.Or(o.About, "CNI plugin "+o.Name)
	o.Mesh.Policy.AgentName = cmp.Or(o.Mesh.Policy.AgentName, o.Name+"-node")
	o.Installer = cmp.Or(o.Installer, "its installer")
	o.Uninstall = cmp.Or(o.Uninstall, "take the entry of "+o.Name+" out of this node's CNI configuration")
	if o.Answered == nil {
		o.Answered = func(int) {}
	}
	if o.Version == "" { // reading it takes long
		o.Version = mainVersion()
	}
}

// mainVersion is the version of the main module.
func mainVersion() string {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	return cmp.Or(version, "(unknown version)")
}

// limits are how long the plugin waits for answers. The setting timeout bounds all questions of an
// ADD together.
type limits struct {
	// Agent and AgentRequest are for asking the node agent about a pod, in all and for each request;
	// podsource's when 0.
	Agent, AgentRequest time.Duration
	// ServerRequest is for each request to the API server about a pod; podsource's when 0.
	ServerRequest time.Duration
	// StatusAgent and StatusServer are for STATUS: runtimes ask all the time, and wait for the answer.
	StatusAgent, StatusServer time.Duration
	// Tell is for all that the plugin tells the node agent after a command.
	Tell time.Duration
	// Deleted is for [Options].Deleted.
	Deleted time.Duration
}

// usualLimits are those of production.
func usualLimits() limits {
	return limits{StatusAgent: 2 * time.Second, StatusServer: 3 * time.Second, Tell: 250 * time.Millisecond, Deleted: time.Second}
}

// policedBy returns a mesh whose policy is completed by a configuration.
func policedBy(m sidecar.Mesh, c *config) sidecar.Mesh {
	m.Policy.ExcludeNamespaces = slices.Concat(m.Policy.ExcludeNamespaces, c.ExcludeNamespaces)
	m.Policy.AgentNamespace = cmp.Or(c.PodNamespace, m.Policy.AgentNamespace)
	m.Policy.AgentName = cmp.Or(c.AgentName, m.Policy.AgentName)
	return m
}
