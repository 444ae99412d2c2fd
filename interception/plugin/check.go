// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/podsource"
)

// examination is one CHECK. It changes nothing.
type examination struct {
	*call
	conf       *config
	ref        podsource.Ref
	netns      string
	attachment journal.Attachment
}

// check is the CHECK command.
func (c *call) check(ctx context.Context, args *skel.CmdArgs) (err error) {
	defer c.recoverInto(&err)
	c.about(args)
	conf, err := c.configure(args.StdinData)
	if c.uninstalled() {
		return nil
	}
	if err != nil {
		return err
	}
	ref, err := c.pod(args.Args)
	if err != nil {
		return err
	}
	if err := c.checkResult(conf, args.Netns); err != nil {
		return err
	}
	attachment := journal.Attachment{Network: conf.Name, ContainerID: args.ContainerID, Interface: args.IfName}
	record, err := conf.journal().Read(attachment)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("the record of what ADD applied cannot be read; planning anew", "error", err.Error())
	}
	within, cancel := withTimeout(ctx, conf.Timeout.Duration())
	defer cancel()
	x := examination{c, conf, ref, args.Netns, attachment}
	if err == nil {
		return x.compareWithRecord(within, record)
	}
	return x.compareWithToday(ctx, within)
}

// compareWithRecord compares the rules with what ADD applied. If the pod asks for something else
// today, that is only logged.
func (x examination) compareWithRecord(ctx context.Context, record journal.Record) error {
	ns, err := x.open()
	if err != nil {
		return err
	}
	defer ns.Close() //nolint:errcheck // nothing is written through it
	if err := x.compare(ctx, ns, record.Plan, cmp.Or(record.Dataplane, x.conf.Chosen())); err != nil {
		return err
	}
	if version := x.Version; record.Planner != version {
		x.log.Info("the rules were planned by another version, which may plan otherwise", "then", record.Planner, "now", version)
		return nil
	}
	plan, why, err := x.planToday(ctx, ns)
	if plan != nil && record.Plan.IsSparing() {
		plan = plan.Sparing() // a repair of the running pod spares connections; the pod did not ask for that
	}
	switch {
	case err != nil:
		x.log.Info("what the pod asks for now is unknown, and not compared with what it asked for then", "error", err.Error())
	case plan == nil:
		x.log.Warn("pod would be left alone now; the rules of its start stay", "reason", why)
	case plan.Fingerprint() != record.Plan.Fingerprint():
		x.log.Warn("pod has asked for something else since its rules were applied; they stay as they are, until it is created again",
			"then", record.Plan.Fingerprint(), "now", plan.Fingerprint())
	}
	return nil
}

// compareWithToday compares the rules with what an ADD would apply now, if there is no record. A
// pod that no source knows passes where an ADD would have let it start. Within is ctx, and ends
// with the time for a CHECK.
func (x examination) compareWithToday(ctx, within context.Context) error {
	request := &Request{Command: "CHECK", Pod: x.ref, Attachment: x.attachment, Netns: x.netns, Config: x.conf.Config, Log: x.log}
	if decision, decided, err := x.decideAlone(within, request); decided || err != nil {
		if decided {
			x.leaveAlone(decision)
		}
		return err
	}
	ns, err := x.open()
	if err != nil {
		return err
	}
	defer ns.Close() //nolint:errcheck // nothing is written through it
	answer, err := x.learn(within, x.conf, x.ref)
	switch {
	case err == nil:
	case ctx.Err() == nil && x.conf.FailPolicy.Opens(x.ref.Namespace): // and no signal has stopped the plugin
		x.log.Warn("pod is not checked: no source knows it, and fail_policy is open", "error", err.Error())
		return nil
	default:
		return sourceFailure(err, "")
	}
	plan, why, err := x.planOf(ns, answer.Pod)
	switch {
	case err != nil:
		return err
	case plan == nil:
		x.log.Info("pod is left alone", "reason", why)
		return nil
	}
	x.log.Warn("there is no record of what ADD applied: the rules are compared with what the pod asks for now")
	return x.compare(within, ns, plan, x.conf.Chosen())
}

func (x examination) open() (*interception.Netns, error) {
	ns, err := interception.OpenNetns(x.netns, interception.NetnsOptions{ProcRoot: x.conf.ProcRoot})
	if err != nil {
		return nil, netnsFailure(x.ref, x.netns, err)
	}
	return ns, nil
}

// planToday returns what an ADD would apply now. A nil plan means that ADD would leave the pod
// alone, and why says for what reason.
func (x examination) planToday(ctx context.Context, ns *interception.Netns) (plan *interception.Plan, why string, err error) {
	answer, err := x.learn(ctx, x.conf, x.ref)
	if err != nil {
		return nil, "", sourceFailure(err, "")
	}
	return x.planOf(ns, answer.Pod)
}

// planOf is planToday of a pod that is known.
func (x examination) planOf(ns *interception.Netns, pod interception.Pod) (plan *interception.Plan, why string, err error) {
	if decision := x.Mesh.Decide(pod); !decision.Capture {
		return nil, decision.String(), nil
	}
	redirect, _, err := x.Mesh.Parse(pod)
	if err != nil {
		return nil, "", parseFailure(x.ref, err)
	}
	plan, err = x.planIn(ns, x.ref, redirect)
	return plan, "", err
}

// compare compares a plan with what the kernel holds, which the dataplane of a setting reads.
func (x examination) compare(ctx context.Context, ns *interception.Netns, want *interception.Plan, setting string) error {
	dataplane, err := x.backend(setting)
	var state interception.State
	if err == nil {
		state, err = dataplane.Observe(ctx, ns, want.Owner)
	}
	if err != nil {
		return observeFailure(x.ref, err)
	}
	var ours, others []interception.Drift
	for _, d := range interception.Diff(want, state) {
		if d.Kind == interception.DriftForeign {
			others = append(others, d)
		} else {
			ours = append(ours, d)
		}
	}
	if len(others) > 0 {
		x.log.Warn("other programs have rules in the pod's network namespace, which may change where its traffic goes",
			"rules", len(others), "first", boundedTo(others[0].String(), maxField))
	}
	if len(ours) > 0 {
		return driftFailure(x.ref, ours)
	}
	return nil
}

// maxDrifts is how many differences an error lists.
const maxDrifts = 20

func driftFailure(ref podsource.Ref, drifts []interception.Drift) error {
	var listed []string
	for _, d := range drifts[:min(len(drifts), maxDrifts)] {
		listed = append(listed, boundedTo(d.String(), maxField))
	}
	count, more := "1 difference", ""
	if len(drifts) > 1 {
		count = fmt.Sprintf("%d differences; the first", len(drifts))
	}
	if n := len(drifts) - len(listed); n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return &Error{
		Code: codeDrift, Step: "compare the rules of pod " + ref.String() + " with its plan", Err: fmt.Errorf("%s: %s", count, listed[0]),
		Remedy: bounded("another program changed the rules in the pod's network namespace; create the pod again, or find out which program did: " +
			strings.Join(listed, "; ") + more),
	}
}
