// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// call is one call of the plugin, with any command.
type call struct {
	*env
	log        *slog.Logger
	level      *slog.LevelVar
	transcript *transcript
	runDir     string // of the configuration, once it has been read
	cniVersion string // likewise
	result     []byte // what to print if all goes well
	agent      agentState
	connection podsource.AgentConnection // to the agent, from its question to the report
	noteRead   bool                      // the note of an uninstall was looked for, and
	gone       bool                      // was there
	report     podsource.Result          // the agent gets an ADD's only
}

// agentState is what the call has found out about the node agent.
type agentState int

const (
	agentUnknown agentState = iota // the agent has not been asked
	agentAbsent                    // there is no socket
	agentFailed                    // no program answers there
	agentThere
)

// Reasons that package interception doesn't have.
const (
	reasonUninstalled = "uninstalled"
	reasonFailOpen    = "fail-open"
)

func newCall(e *env, command string) *call {
	c := &call{env: e, level: new(slog.LevelVar), transcript: &transcript{to: e.Stderr}, runDir: e.Paths.RunDir}
	c.log = newLogger(c.transcript, c.level)
	c.report.Time, c.report.Command = time.Now().UTC(), command
	return c
}

// configure reads the configuration, and sets the log's level and the mesh's policy by it.
func (c *call) configure(data []byte) (*config, error) {
	conf, err := parseConfig(data, c.Paths, c.Name)
	c.cniVersion, c.runDir = conf.CNIVersion, c.Paths.RunDirOf(conf.Config)
	if err == nil {
		c.level.Set(conf.Level)
		c.Mesh = policedBy(c.Mesh, conf)
	}
	return conf, err
}

// stage begins a part of the command. The returned function ends it, and reports how long it took.
func (c *call) stage(name string) (end func()) {
	begin := time.Now()
	return func() {
		took := time.Since(begin).Round(time.Microsecond)
		c.report.Stages = append(c.report.Stages, podsource.Stage{Name: name, Milliseconds: float64(took) / float64(time.Millisecond)})
	}
}

// about notes, in the report and the log, which container the call is about.
func (c *call) about(args *skel.CmdArgs) {
	c.report.ContainerID = args.ContainerID
	c.log = c.log.With("container", args.ContainerID)
}

// pod reads which pod the call is about, and notes it in the report and the log.
func (c *call) pod(args string) (podsource.Ref, error) {
	ref, err := podOf(args)
	if err != nil {
		return podsource.Ref{}, err
	}
	c.report.Namespace, c.report.Name, c.report.UID = ref.Namespace, ref.Name, ref.UID
	c.log = c.log.With("pod", ref.String())
	return ref, nil
}

// recoverInto turns a panic into an error.
func (c *call) recoverInto(err *error) {
	if value := recover(); value != nil {
		*err = &Error{
			Code: codePanic, Step: c.report.Command, Err: fmt.Errorf("panic: %v", value),
			Remedy: "this is a defect of " + c.Name + ": please report it, with this: " + bounded(string(debug.Stack())),
		}
	}
}

func (c *call) leaveAlone(d sidecar.Decision) {
	c.report.Reason, c.report.Detail = string(d.Reason), bounded(d.Detail)
	c.log.Info("pod is left alone", "reason", string(d.Reason), "detail", d.Detail)
}

// podOf reads the pod's names from CNI_ARGS. They are empty if the container is not of Kubernetes.
func podOf(args string) (podsource.Ref, error) {
	var a struct {
		types.CommonArgs
		K8S_POD_NAMESPACE          types.UnmarshallableString //nolint:revive,staticcheck // the field's name is the key
		K8S_POD_NAME               types.UnmarshallableString //nolint:revive,staticcheck // likewise
		K8S_POD_UID                types.UnmarshallableString //nolint:revive,staticcheck // likewise
		K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString //nolint:revive,staticcheck // known, and of no use here
	}
	if err := types.LoadArgs(args, &a); err != nil {
		return podsource.Ref{}, &Error{
			Code: types.ErrInvalidEnvironmentVariables, Step: "read CNI_ARGS", Err: err,
			Remedy: "the container runtime sets it, as KEY=VALUE;KEY=VALUE: see its log and version",
		}
	}
	return podsource.Ref{Namespace: string(a.K8S_POD_NAMESPACE), Name: string(a.K8S_POD_NAME), UID: string(a.K8S_POD_UID)}, nil
}

// soon is longer than a command takes if it waits for nothing.
const soon = 50 * time.Millisecond

// untilSignalled returns a context that SIGTERM or SIGINT ends. A signal that comes earlier than
// soon kills the process, as SIGKILL may at any time: catching signals takes three threads, and
// most commands are over before they would need them.
func untilSignalled() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	time.AfterFunc(soon, func() {
		signalled, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		<-signalled.Done()
		end(context.Cause(signalled))
	})
	return ctx
}
