// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/meshcni/meshcni/internal/jsonreader"
)

// This is what package skel of containernetworking/cni does, and says: a test holds both together. It costs less, for each pod: skel links
// regular expressions, which compile one at the start of every process, and asks encoding/json twice about the configuration.

// cmdArgs are what a command is called with (CNI specification, section "Execution Protocol").
type cmdArgs struct {
	ContainerID, Netns, IfName, Args, Path, NetnsOverride string
	// StdinData is the configuration.
	StdinData []byte
}

// commands are the functions of those commands that have one.
type commands struct {
	Add, Check, GC, Status func(*cmdArgs) error
}

// runtimeCall is one call by the container runtime.
type runtimeCall struct {
	getenv func(string) string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// serve reads the command and calls its function. Without any it says about to whoever looks at standard error.
func (r runtimeCall) serve(c commands, about string) *types.Error {
	command := r.getenv("CNI_COMMAND")
	if command == "" && about != "" {
		_, _ = fmt.Fprintf(r.stderr, "%s\nCNI protocol versions supported: %s\n", about, strings.Join(cniversion.All.SupportedVersions(), ", "))
		return nil
	}
	args, failure := r.arguments(command)
	if failure != nil {
		return failure
	}
	switch command {
	case "ADD":
		if failure := args.call(c.Add); failure != nil {
			return failure
		}
		return args.checkNetns()
	case "CHECK":
		return args.callSince("0.4.0", command, c.Check)
	case "GC":
		return args.callSince("1.1.0", command, c.GC)
	case "STATUS":
		return args.callSince("1.1.0", command, c.Status)
	case "VERSION":
		if err := cniversion.All.Encode(r.stdout); err != nil {
			return types.NewError(types.ErrIOFailure, err.Error(), "")
		}
		return nil
	default:
		return types.NewError(types.ErrInvalidEnvironmentVariables, "unknown CNI_COMMAND: "+command, "")
	}
}

// arguments reads what the command is called with.
func (r runtimeCall) arguments(command string) (*cmdArgs, *types.Error) {
	a := &cmdArgs{}
	var missing []string
	container := []string{"ADD", "CHECK"}
	for _, v := range []struct {
		name     string
		to       *string
		needed   []string // by these commands
		validate func(string) *types.Error
	}{
		{"CNI_CONTAINERID", &a.ContainerID, container, validateContainerID},
		{"CNI_NETNS", &a.Netns, container, nil},
		{"CNI_IFNAME", &a.IfName, container, validateInterfaceName},
		{"CNI_ARGS", &a.Args, nil, nil},
		{"CNI_PATH", &a.Path, []string{"ADD", "CHECK", "GC", "STATUS"}, nil},
		{"CNI_NETNS_OVERRIDE", &a.NetnsOverride, nil, nil},
	} {
		*v.to = r.getenv(v.name)
		switch needed := slices.Contains(v.needed, command); {
		case needed && *v.to == "":
			missing = append(missing, v.name)
		case needed && v.validate != nil:
			if failure := v.validate(*v.to); failure != nil {
				return nil, failure
			}
		}
	}
	if len(missing) > 0 {
		text := "required env variables [" + strings.Join(missing, ",") + "] missing"
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, text, "")
	}
	if command == "VERSION" {
		return a, nil
	}
	var err error
	if a.StdinData, err = io.ReadAll(r.stdin); err != nil {
		return nil, types.NewError(types.ErrIOFailure, "error reading from stdin: "+err.Error(), "")
	}
	return a, a.validateName()
}

// conf reads what every configuration has, as far as it is usual.
func (a *cmdArgs) conf() (name, version string, ok bool) {
	ok = jsonreader.Read(a.StdinData, func(r *jsonreader.Reader) {
		r.Object(jsonreader.Member{Name: "name", To: &name}, jsonreader.Member{Name: "cniVersion", To: &version})
	})
	return name, version, ok
}

func (a *cmdArgs) validateName() *types.Error {
	name, _, ok := a.conf()
	if !ok {
		var c struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(a.StdinData, &c); err != nil {
			return types.NewError(types.ErrDecodingFailure, "error unmarshall network config: "+err.Error(), "")
		}
		name = c.Name
	}
	switch {
	case name == "":
		return types.NewError(types.ErrInvalidNetworkConfig, "missing network name", "")
	case !isName(name):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid characters found in network name", name)
	}
	return nil
}

func (a *cmdArgs) version() (string, *types.Error) {
	switch _, version, ok := a.conf(); {
	case ok && version == "":
		return "0.1.0", nil
	case ok:
		return version, nil
	}
	version, err := create.DecodeVersion(a.StdinData)
	if err != nil {
		return "", types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	return version, nil
}

// callSince calls the function of a command that there is since a version of the specification.
func (a *cmdArgs) callSince(since, name string, command func(*cmdArgs) error) *types.Error {
	version, failure := a.version()
	if failure != nil {
		return failure
	}
	known, err := cniversion.GreaterThanOrEqualTo(version, since)
	switch {
	case err != nil:
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	case !known:
		return types.NewError(types.ErrIncompatibleCNIVersion, "config version does not allow "+name, "")
	}
	for _, supported := range cniversion.All.SupportedVersions() {
		if newer, err := cniversion.GreaterThanOrEqualTo(supported, version); err == nil && newer {
			return a.call(command)
		}
	}
	return types.NewError(types.ErrIncompatibleCNIVersion, "plugin version does not allow "+name, "")
}

// call calls a command's function, if the plugin speaks the configuration's version.
func (a *cmdArgs) call(command func(*cmdArgs) error) *types.Error {
	version, failure := a.version()
	if failure != nil {
		return failure
	}
	if incompatible := new(cniversion.Reconciler).Check(version, cniversion.All); incompatible != nil {
		return types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", incompatible.Details())
	}
	err := command(a)
	var coded *types.Error
	if err != nil && !errors.As(err, &coded) {
		return types.NewError(types.ErrInternal, err.Error(), "")
	}
	return coded
}

// checkNetns is the last that is asked behind an ADD.
func (a *cmdArgs) checkNetns() *types.Error {
	if strings.EqualFold(a.NetnsOverride, "true") || a.NetnsOverride == "1" {
		return nil
	}
	own, failure := ns.CheckNetNS(a.Netns)
	if failure == nil && own {
		failure = types.NewError(types.ErrInvalidNetNS, "plugin's netns and netns from CNI_NETNS should not be the same", "")
	}
	return failure
}

// isName reports whether a network or a container may have the name.
func isName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("_.-", rune(c))) {
			return false
		}
	}
	return name != ""
}

func validateContainerID(id string) *types.Error {
	if !isName(id) {
		return types.NewError(types.ErrInvalidEnvironmentVariables, "invalid characters in containerID", id)
	}
	return nil
}

// maxInterfaceName is IFNAMSIZ without the NUL.
const maxInterfaceName = 15

func validateInterfaceName(name string) *types.Error {
	const code = types.ErrInvalidEnvironmentVariables
	switch {
	case len(name) > maxInterfaceName:
		return types.NewError(code, "interface name is too long", fmt.Sprintf("interface name should be less than %d characters", maxInterfaceName+1))
	case name == "." || name == "..":
		return types.NewError(code, "interface name is . or ..", "")
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }):
		return types.NewError(code, "interface name contains / or : or whitespace characters", "")
	}
	return nil
}
