// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// addition is one ADD.
type addition struct {
	*call
	netns      string // the path of the pod's network namespace
	attachment journal.Attachment
}

// add is the ADD command.
func (c *call) add(ctx context.Context, args *skel.CmdArgs) (err error) {
	defer c.recoverInto(&err)
	c.about(args)
	conf, err := c.configure(args.StdinData)
	gone := c.uninstalled()
	if err != nil && !gone {
		return err
	}
	result, err := passThrough(conf.PrevResult, conf.CNIVersion)
	if err != nil {
		return resultFailure(c.Name, err)
	}
	if !gone {
		pod, err := c.pod(args.Args)
		if err != nil {
			return err
		}
		attachment := journal.Attachment{Network: conf.Name, ContainerID: args.ContainerID, Interface: args.IfName}
		if err := (&addition{c, args.Netns, attachment}).capture(ctx, conf, pod); err != nil {
			return err
		}
	}
	c.result = result
	return nil
}

// capture decides about the pod without asking a source if it can. Otherwise it asks the sources,
// and enforces the decision.
func (a *addition) capture(ctx context.Context, c *config, ref podsource.Ref) error {
	request := &Request{Command: "ADD", Pod: ref, Attachment: a.attachment, Netns: a.netns, Config: c.Config, Log: a.log}
	within, cancel := withTimeout(ctx, c.Timeout.Duration())
	defer cancel()
	if decision, decided, err := a.decideAlone(within, request); decided || err != nil {
		if decided {
			a.leaveAlone(decision)
		}
		return err
	}
	answer, err := a.learn(within, c, ref)
	if isAttended(err) {
		a.attended(c)
	}
	switch {
	case err == nil:
		return a.enforce(within, c, ref, answer)
	case ctx.Err() == nil && c.FailPolicy.Opens(ref.Namespace): // and no signal has stopped the plugin
		a.report.Reason, a.report.Detail = reasonFailOpen, err.Error()
		a.log.Warn("pod is left alone, in the mesh or not: no source knows it, and fail_policy is open", "error", err.Error())
		return nil
	default:
		return sourceFailure(err, a.abandoned(c, err, time.Now()))
	}
}

// withTimeout returns a context that ends when the time for an ADD or a CHECK is over.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("the timeout of %v has expired: %w", d, context.DeadlineExceeded))
}

// decideAlone decides about a pod for which no source has to be asked.
func (c *call) decideAlone(ctx context.Context, r *Request) (_ sidecar.Decision, decided bool, _ error) {
	if decision, decided := c.Mesh.ByName(r.Pod.Namespace, r.Pod.Name); decided {
		return decision, true, nil
	}
	if decision, decided, err := c.askBefore(ctx, r); decided || err != nil {
		return decision, decided, err
	}
	if annotations := r.Config.RuntimeConfig.PodAnnotations; annotations != nil {
		if decision, decided := c.Mesh.ByAnnotations(r.Pod.Namespace, r.Pod.Name, annotations); decided {
			return decision, true, nil
		}
	}
	return sidecar.Decision{}, false, nil
}

// enforce decides about the pod that a source returned, and redirects its traffic if the decision
// says so.
func (a *addition) enforce(ctx context.Context, c *config, ref podsource.Ref, answer podsource.Answer) error {
	a.log, a.report.Source = a.log.With("source", answer.Source), answer.Source
	decision := a.Mesh.Decide(answer.Pod)
	if !decision.Capture {
		a.leaveAlone(decision)
		return nil
	}
	a.report.Reason = string(decision.Reason)
	redirect, warnings, err := a.Mesh.Parse(answer.Pod)
	for _, w := range warnings {
		a.report.Warnings = append(a.report.Warnings, w.Source.String()+": "+w.Reason)
		a.log.Warn("part of the pod may not do what its author expects", "setting", w.Source.String(), "reason", w.Reason)
	}
	if err != nil {
		return parseFailure(ref, err)
	}
	return a.program(ctx, c, ref, redirect)
}

// program writes the rules of the redirect into the pod's network namespace, and records them.
func (a *addition) program(ctx context.Context, c *config, ref podsource.Ref, redirect sidecar.Redirect) error {
	ended := a.stage("plan")
	ns, err := interception.OpenNetns(a.netns, interception.NetnsOptions{ProcRoot: c.ProcRoot})
	if err != nil {
		return netnsFailure(ref, a.netns, err)
	}
	defer ns.Close() //nolint:errcheck // nothing is written through it
	plan, err := a.planIn(ns, ref, redirect)
	ended()
	if err != nil {
		return err
	}
	ended = a.stage("apply")
	applied := ""
	dataplane, err := a.backend(c.Chosen())
	if err == nil {
		applied, err = dataplane.ApplyBy(ctx, ns, plan)
	}
	ended()
	if err != nil {
		return applyFailure(ref, err)
	}
	ended = a.stage("record")
	a.record(c.journal(), journal.Record{
		Attachment: a.attachment, Time: time.Now().UTC(), Planner: a.Version,
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, Netns: a.netns, NetnsID: ns.ID(), Dataplane: applied, Plan: plan,
	})
	ended()
	a.report.Captured, a.report.Plan = true, plan.Fingerprint()
	a.log.Info("pod is captured", "plan", a.report.Plan)
	return nil
}

// planIn makes the plan of a captured pod, with the facts of its network namespace.
func (c *call) planIn(ns *interception.Netns, ref podsource.Ref, redirect sidecar.Redirect) (*interception.Plan, error) {
	facts, err := netfacts.Read(ns)
	if err != nil {
		return nil, &Error{
			Code: codeFacts, Step: "look into the network namespace of pod " + ref.String(), Err: err,
			Remedy: "the plugin has to run as root on the node, with /proc mounted",
		}
	}
	plan, err := sidecar.Plan(redirect, facts, c.Mesh.Owner)
	if err != nil {
		return nil, &Error{
			Code: codePlan, Step: "plan for pod " + ref.String(), Err: err,
			Remedy: "change what the pod asks for, and create it again; what is not supported is never left out in silence",
		}
	}
	return plan, nil
}

// record writes down what was applied. A captured pod starts even if that fails, for example
// because the disk is full.
func (a *addition) record(j journal.Journal, r journal.Record) {
	if err := j.Write(r); err != nil {
		a.log.Warn("what was applied could not be recorded, so that later checks can't compare with it", "error", err.Error())
	}
}
