// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// form is a form of capture, with what is found before this process has the turn.
type form struct {
	host *interception.Netns // nil if nothing is done on the host; the caller closes it
	open func(ctx context.Context, pods *feed.Client) (formAgent, error)
}

// drainTime is how long captured connections may go on; 0 for the agents' own time.
type drainTime = time.Duration

// opener opens the agent of a form of capture.
type opener func(ctx context.Context, p part) (formAgent, error)

// part is what an agent has to do with others.
type part struct {
	feed        agent.Feed
	annotator   agent.Annotator
	observe     func(agent.Pod)
	observeHost func(error)
	held        func(uid string) ambient.Step // nil if no pod is
	inPod       func(uid string) bool         // for the agent on the node; nil if no pod is
	retiring    bool                          // it is the agent of the former form
}

// formAgent is the agent of a form of capture.
type formAgent struct {
	plugin    podAgent
	operators meshAgent
	inside    insider // nil if the agent enters no pods
	run       func(context.Context) error
	alone     func() // tells the agent that no other one has pods; nil if it need not know
}

// surroundings are what both forms work with.
type surroundings struct {
	options

	policy ambient.Policy
	planes dataplanes
	finder *podnetns.Finder
	host   *interception.Netns
	report *reporter
	log    *slog.Logger
}

// newForm finds what the form of capture works with that the settings ask for.
func newForm(ctx context.Context, o options, report *reporter, log *slog.Logger) (form, error) {
	policy, err := o.settings.Policy()
	if err != nil {
		return form{}, err
	}
	drain, err := o.settings.Drain()
	if err != nil {
		return form{}, err
	}
	planes, err := chooseDataplanes(ctx, o.settings, log)
	if err != nil {
		return form{}, err
	}
	finder, err := podnetns.NewFinder(o.roots)
	if err != nil {
		return form{}, err
	}
	s := surroundings{options: o, policy: policy, planes: planes, finder: finder, report: report, log: log}
	if !o.settings.NoHost {
		if s.host, err = interception.HostNetns(interception.NetnsOptions{ProcRoot: o.roots.Proc}); err != nil {
			return form{}, err
		}
	}
	return form{s.host, func(ctx context.Context, pods *feed.Client) (formAgent, error) { return s.open(ctx, pods, drain) }}, nil
}

// open opens the agent of the form that the settings ask for. Where pods are captured in the other
// form, it opens that form's agent, too, and the pods move.
func (s surroundings) open(ctx context.Context, pods *feed.Client, drain drainTime) (formAgent, error) {
	open := s.openInPod(drain)
	if s.settings.OnNode() {
		open = s.openOnNode(drain)
	}
	former, err := s.findFormer(ctx, drain)
	if err != nil {
		return formAgent{}, err
	}
	if former == nil {
		return open(ctx, part{feed: pods, annotator: pods, observe: s.report.pod, observeHost: s.observeHost})
	}
	s.log.Info("the pods of the node move to another form of capture, one at a time", "from", former.mode, "pods", len(former.pods))
	m, hosts := newMove(former, newFork(pods), s.log), &hostErrors{tell: s.observeHost}
	m.from, err = former.open(ctx, part{
		feed: m.fork.branches[1], annotator: silent{}, observe: m.seeFormer, observeHost: hosts.of(1), retiring: true,
		inPod: m.inNew, held: m.heldInFormer,
	})
	if err != nil {
		return formAgent{}, fmt.Errorf("%w: open the agent of mode %q, in which they are: %w", errOtherForm, former.mode, err)
	}
	m.to, err = open(ctx, part{
		feed: m.fork.branches[0], annotator: statuses{pods, m}, observeHost: hosts.of(0), held: m.held, inPod: m.inFormer,
		observe: func(pod agent.Pod) {
			s.report.pod(pod)
			m.see(pod)
		},
	})
	if err != nil {
		return formAgent{}, errors.Join(err, m.from.close(ctx))
	}
	m.ended = func() {
		hosts.of(1)(nil)
		if m.to.alone != nil {
			m.to.alone()
		}
	}
	both := moving{m.to.operators, m}
	return formAgent{plugin: both, operators: both, inside: m.to.inside, run: m.run}, nil
}

// close closes what an agent has opened that was not run.
func (a formAgent) close(ctx context.Context) error {
	ended, end := context.WithCancel(ctx)
	end()
	if err := a.run(ended); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// withoutNotices is told that the kernel refuses to tell of changes.
func (s surroundings) withoutNotices(err error) {
	s.log.Warn("changes of rules by other programs are found in rounds only: grant NET_BROADCAST to have them noticed", "error", err)
}

// observeHost is told how the host is.
func (s surroundings) observeHost(err error) {
	if errors.Is(err, agent.ErrUncounted) { // the rules stand
		s.report.host(nil)
		s.log.Warn("changes of the host's rules by other programs are found in rounds only", "error", err)
		return
	}
	s.report.host(err)
	if err != nil {
		s.log.Error("the host's rules are not as they should be", "error", err)
		return
	}
	s.log.Info("the host's rules are as they should be again")
}
