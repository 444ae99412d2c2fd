// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// Options say what the plugin is built as.
type Options struct {
	// Version is what the linker gave; that of the build when it is empty.
	Version string
}

// Main does what CNI_COMMAND says, and ends the process.
func Main(o Options) {
	growStack(false)
	calmMonitor()
	os.Exit(run(untilToldToEnd(), env{
		Options:      o,
		Getenv:       os.Getenv,
		Stdin:        os.Stdin,
		Stdout:       os.Stdout,
		Stderr:       os.Stderr,
		Serve:        skel.PluginMainFuncsWithError,
		NewDataplane: newDataplane,
		Executable:   os.Executable,
		Answered:     noteAnswer,
		Limits:       usualLimits(),
	}))
}

// env is all that the plugin has of the world, save the files and the namespace that its configuration names.
type env struct {
	Options
	// Getenv is asked for CNI_COMMAND and, in DEL, the attachment; the rest of the protocol is Serve's.
	Getenv func(string) string
	// Stdin has the configuration, and is read in DEL only.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Serve reads a command from the runtime and calls its function. skel's own takes it from this process's environment and
	// standard input, and knows no other way; a test calls the function itself.
	Serve func(skel.CNIFuncs, cniversion.PluginInfo, string) *types.Error
	// NewDataplane makes the dataplane of a setting, once it is needed. Where that lets it choose, applied is told what it chose.
	NewDataplane func(setting string, applied func(name string)) (interception.Dataplane, error)
	// Executable is the path of the plugin's binary; beside it the daemon leaves word of an uninstall.
	Executable func() (string, error)
	// Answered is told the exit code as soon as the answer is on Stdout; for DEL, which has none, at the start.
	Answered func(code int)
	// Limits are how long others may take.
	Limits limits
	// Backoff is podsource.APIServer's; nil in production.
	Backoff func(failures int) time.Duration
}

// run does what CNI_COMMAND says, and returns the exit code. Standard output gets one JSON object at most: the result, or the error.
func run(ctx context.Context, e env) int {
	command := e.Getenv("CNI_COMMAND")
	c := newCall(e, command)
	defer c.deliver(context.WithoutCancel(ctx)) // the answer has been given by then, or the runtime has given up
	if command == "DEL" {
		e.Answered(0)
		c.forget()
		return 0
	}
	about := ""
	if command == "" {
		about = "CNI plugin " + pluginName + " of meshcni " + c.buildVersion()
	}
	failure := e.Serve(skel.CNIFuncs{
		Add:    func(args *skel.CmdArgs) error { return c.add(ctx, args) },
		Check:  func(args *skel.CmdArgs) error { return c.check(ctx, args) },
		GC:     func(args *skel.CmdArgs) error { return c.collect(args.StdinData) },
		Status: func(args *skel.CmdArgs) error { return c.status(ctx, args.StdinData) },
	}, cniversion.All, about)
	if failure == nil && c.result != nil {
		// skel makes a last check behind ADD, so the result isn't written before.
		if _, err := e.Stdout.Write(c.result); err != nil {
			failure = types.NewError(types.ErrIOFailure, "write result: "+err.Error(), "see the container runtime's log")
		}
	}
	if failure == nil {
		e.Answered(0)
		return 0
	}
	c.fail(failure)
	return 1
}

// fail answers with an error, and logs it.
func (c *call) fail(failure *types.Error) {
	if failure.Details == "" {
		failure.Details = runtimeRemedy // skel gives none
	}
	c.report.Captured = false
	c.report.Error = &podsource.ResultError{Code: failure.Code, Message: failure.Msg, Details: failure.Details}
	c.log.Error(failure.Msg, "code", failure.Code, "details", failure.Details)
	encoder := json.NewEncoder(c.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(errorResult{c.cniVersion, failure}); err != nil {
		c.log.Error("write error", "error", err)
	}
	c.Answered(1)
}

// runtimeRemedy is for what is refused before a command begins.
const runtimeRemedy = "this is what the container runtime passed: see its log, its version, and the node's CNI configuration"

// errorResult is an error in the form of the CNI specification, section "Error", which types.Error lacks the version for.
type errorResult struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	*types.Error
}

// buildVersion is the version that the linker or, without it, the go command gave.
func (o Options) buildVersion() string {
	if o.Version != "" {
		return o.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown version)"
}
