// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/journal"
)

// pluginName is how the plugin calls itself, and the owner of its rules.
const pluginName = "istio-cni"

// addition is one ADD.
type addition struct {
	env
	log        *slog.Logger
	netns      string // the path of the pod's network namespace
	cniVersion string // of the configuration, once it has been read
	attachment journal.Attachment
	result     []byte // what is to be printed, once all went well
}

// add is the ADD command.
func (a *addition) add(ctx context.Context, args *skel.CmdArgs) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicked(value, debug.Stack())
		}
	}()
	c, err := parseConfig(args.StdinData)
	a.netns, a.cniVersion = args.Netns, c.CNIVersion
	if err != nil {
		return err
	}
	a.log = newLogger(a.Stderr, c.level).With("container", args.ContainerID)
	a.attachment = journal.Attachment{Network: c.Name, ContainerID: args.ContainerID, Interface: args.IfName}
	result, err := passThrough(c.PrevResult, c.CNIVersion)
	if err != nil {
		return &failure{
			code: types.ErrDecodingFailure, step: "read prevResult", cause: err,
			remedy: "the plugin before " + pluginName + " in the chain, or the runtime, wrote it: see whether their versions fit together",
		}
	}
	pod, err := podOf(args.Args)
	if err != nil {
		return err
	}
	a.log = a.log.With("pod", pod.String())
	if err := a.capture(ctx, c, pod); err != nil {
		return err
	}
	a.result = result
	return nil
}

// capture decides about the pod as far as that costs nothing, and learns about it otherwise.
func (a *addition) capture(ctx context.Context, c config, ref podsource.Ref) error {
	policy := c.policy(interception.Istio().Membership)
	if decision, decided := interception.DecideByName(ref.Namespace, ref.Name, policy); decided {
		a.leaveAlone(decision)
		return nil
	}
	if c.AmbientEnabled {
		return &failure{
			code: types.ErrUnsupportedField, step: "decide about pod " + ref.String(),
			cause: errors.New("ambient_enabled is true, and this plugin has no ambient mode: the pod's traffic might pass the mesh by"),
			remedy: "set ambient_enabled to false, or exclude the namespaces that have no sidecars with exclude_namespaces; " +
				"for ambient mode use Istio's own plugin",
		}
	}
	if annotations := c.RuntimeConfig.PodAnnotations; annotations != nil {
		if decision, decided := interception.DecideByAnnotations(ref.Namespace, ref.Name, annotations, policy); decided {
			a.leaveAlone(decision)
			return nil
		}
	}
	within, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("the timeout of %v is over: %w", c.timeout, context.DeadlineExceeded))
	defer cancel()
	answer, err := a.learn(within, c, ref)
	switch {
	case err == nil:
		return a.enforce(within, c, ref, answer, policy)
	case ctx.Err() == nil && c.FailPolicy.opens(ref.Namespace): // and nobody has told us to end
		a.log.Warn("pod is left alone, whether it is in the mesh or not: no source knows it, and fail_policy is open", "error", err.Error())
		return nil
	default:
		return sourceFailure(err)
	}
}

// enforce decides about the pod, now that it is known, and redirects its traffic where the decision says so.
func (a *addition) enforce(
	ctx context.Context, c config, ref podsource.Ref, answer podsource.Answer, policy interception.Policy,
) error {
	a.log = a.log.With("source", answer.Source)
	if decision := interception.Decide(answer.Pod, policy); !decision.Capture {
		a.leaveAlone(decision)
		return nil
	}
	redirect, warnings, err := interception.Istio().Parse(answer.Pod)
	for _, w := range warnings {
		a.log.Warn("setting without the effect it may seem to have", "setting", w.Source.String(), "reason", w.Reason)
	}
	if err != nil {
		return &failure{
			code: codePod, step: "read what pod " + ref.String() + " asks for", cause: err,
			remedy: "correct the pod, or what made it (its template, or the injector's settings), and create it again",
		}
	}
	return a.program(ctx, c, ref, redirect)
}

func (a *addition) leaveAlone(d interception.Decision) {
	a.log.Info("pod is left alone", "reason", string(d.Reason), "detail", d.Detail)
}

// program makes the pod's network namespace do what the redirect says.
func (a *addition) program(ctx context.Context, c config, ref podsource.Ref, redirect interception.Redirect) error {
	ns, err := interception.OpenNetns(a.netns, interception.NetnsOptions{ProcRoot: c.ProcRoot})
	if err != nil {
		return netnsFailure(ref, a.netns, err)
	}
	defer ns.Close() //nolint:errcheck // nothing is written through it
	facts, err := netfacts.Read(ns)
	if err != nil {
		return &failure{
			code: codeFacts, step: "look into the network namespace of pod " + ref.String(), cause: err,
			remedy: "the plugin has to run as root on the node, with /proc mounted",
		}
	}
	plan, err := interception.PlanSidecar(redirect, facts, pluginName)
	if err != nil {
		return &failure{
			code: codePlan, step: "plan for pod " + ref.String(), cause: err,
			remedy: "change what the pod asks for, and create it again; what is not supported is never left out in silence",
		}
	}
	dataplane, err := a.NewDataplane()
	if err == nil {
		err = dataplane.Apply(ctx, ns, plan)
	}
	if err != nil {
		return applyFailure(ref, err)
	}
	a.record(c.journal(), journal.Record{
		Attachment: a.attachment, Time: time.Now().UTC(), Planner: buildVersion(),
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, Netns: a.netns, NetnsID: ns.ID(), Plan: plan,
	})
	a.log.Info("pod is captured", "plan", plan.Fingerprint(), "ipv6", facts.IPv6)
	return nil
}

// record keeps what was applied. A pod that is captured is not kept from starting because a disk is full.
func (a *addition) record(j journal.Journal, r journal.Record) {
	if err := j.Write(r); err != nil {
		a.log.Warn("what was applied is not recorded, and cannot be compared with later", "error", err.Error())
	}
}

// podOf reads CNI_ARGS. Where nothing is said of a pod, this is not Kubernetes.
func podOf(args string) (podsource.Ref, error) {
	var a struct {
		types.CommonArgs
		K8S_POD_NAMESPACE          types.UnmarshallableString //nolint:revive,staticcheck // the field's name is the key
		K8S_POD_NAME               types.UnmarshallableString //nolint:revive,staticcheck // likewise
		K8S_POD_UID                types.UnmarshallableString //nolint:revive,staticcheck // likewise
		K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString //nolint:revive,staticcheck // known, and of no use here
	}
	if err := types.LoadArgs(args, &a); err != nil {
		return podsource.Ref{}, &failure{
			code: types.ErrInvalidEnvironmentVariables, step: "read CNI_ARGS", cause: err,
			remedy: "the container runtime sets it, as KEY=VALUE;KEY=VALUE: see its log and version",
		}
	}
	return podsource.Ref{Namespace: string(a.K8S_POD_NAMESPACE), Name: string(a.K8S_POD_NAME), UID: string(a.K8S_POD_UID)}, nil
}

func panicked(value any, stack []byte) error {
	return &failure{
		code: codePanic, step: "ADD", cause: fmt.Errorf("panic: %v", value),
		remedy: "this is a defect of " + pluginName + ": please report it, with this: " + bounded(string(stack)),
	}
}
