// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/kernel"
)

// Main is the whole of a plugin's main function: it does what CNI_COMMAND says, and ends the
// process. Options that [Options.Validate] refuses are the error of every command but DEL, which
// always succeeds. An uninstalled plugin lets ADD, CHECK and STATUS pass even so.
func Main(o Options) {
	kernel.Explain()
	os.Exit(run(untilSignalled(), &env{
		Options:    o,
		Getenv:     os.Getenv,
		Stdin:      os.Stdin,
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
		Serve:      skel.PluginMainFuncsWithError,
		Executable: os.Executable,
		Limits:     usualLimits(),
	}))
}

// env is all that the plugin uses of its surroundings, except the files and the namespace that its
// configuration names.
type env struct {
	Options
	// Getenv is asked for CNI_COMMAND and, in DEL, for all of the protocol; in other commands the rest
	// is Serve's.
	Getenv func(string) string
	// Stdin has the configuration, and is read in DEL only.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Serve reads a command from the runtime and calls its function. skel's own takes it from this
	// process's environment and standard input, and knows no other way; a test calls the function
	// itself.
	Serve func(skel.CNIFuncs, cniversion.PluginInfo, string) *types.Error
	// Executable is the path of the plugin's binary; the daemon leaves the note of an uninstall beside
	// it.
	Executable func() (string, error)
	// Limits are how long the node agent and the API server may take.
	Limits limits
	// Backoff is podsource.APIServer's; nil in production.
	Backoff func(failures int) time.Duration
}

// run does what CNI_COMMAND says, and returns the exit code. Standard output gets one JSON object
// at most: the result, or the error.
func run(ctx context.Context, e *env) int {
	command := e.Getenv("CNI_COMMAND")
	e.setDefaults()
	c := newCall(e, command)
	if err := e.Validate(); err != nil {
		c.log.Error("the plugin's main is wrong: please report it", "error", err.Error())
		if !c.passesUnread(command) {
			return e.refuse(command, err)
		}
		c.Paths = pluginconf.PathsOf(c.Name) // those of the options may be what is wrong
	}
	defer c.deliver(context.WithoutCancel(ctx)) // the answer has been given by then, or the runtime has given up
	if command == "DEL" {
		e.Answered(0)
		c.forget(ctx)
		return 0
	}
	about := ""
	if command == "" {
		about = c.About + " " + c.Version
	}
	failure := e.Serve(skel.CNIFuncs{
		Add:    func(args *skel.CmdArgs) error { return c.add(ctx, args) },
		Check:  func(args *skel.CmdArgs) error { return c.check(ctx, args) },
		GC:     func(args *skel.CmdArgs) error { return c.collect(args.StdinData) },
		Status: func(args *skel.CmdArgs) error { return c.status(ctx, args.StdinData) },
	}, cniversion.All, about)
	if failure == nil && c.result != nil {
		// skel makes one more check after ADD, so the result is not written before it.
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

// passesUnread reports whether the plugin was uninstalled and the command needs none of its
// options. The plugin's name must be valid for that, because it is in the name of the uninstall's
// note.
func (c *call) passesUnread(command string) bool {
	return slices.Contains([]string{"ADD", "CHECK", "STATUS"}, command) && filesystem.CheckNewName(c.Name) == nil && c.uninstalled()
}

// refuse answers for a plugin whose options are wrong. DEL succeeds even then, so that pods can
// end.
func (e *env) refuse(command string, err error) int {
	code := 1
	if command == "DEL" {
		code = 0
	} else {
		answer := types.NewError(types.ErrInternal, err.Error(), "this is a defect of the plugin's main: please report it")
		_ = errorResult{Error: answer}.write(e.Stdout) // without a configuration there is no place to tell of a failure
	}
	e.Answered(code)
	return code
}

// fail answers with an error, and logs it.
func (c *call) fail(failure *types.Error) {
	failure.Details = cmp.Or(failure.Details, runtimeRemedy) // skel gives none
	c.report.Captured = false
	c.report.Error = &podsource.ResultError{Code: failure.Code, Message: failure.Msg, Details: failure.Details}
	c.log.Error(failure.Msg, "code", failure.Code, "details", failure.Details)
	if err := (errorResult{c.cniVersion, failure}).write(c.Stdout); err != nil {
		c.log.Error("write error", "error", err)
	}
	c.Answered(1)
}

// runtimeRemedy is for what is refused before a command begins.
const runtimeRemedy = "this is what the container runtime passed: see its log, its version, and the node's CNI configuration"

// errorResult is an error in the form of the CNI specification, section "Error". types.Error lacks
// its version.
type errorResult struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	*types.Error
}

func (r errorResult) write(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}
