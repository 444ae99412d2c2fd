// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// form is a form of capture, with what is found before this process has the turn.
type form struct {
	host *interception.Netns // nil if nothing is done on the host; the caller closes it
	open func(ctx context.Context, pods *feed.Client) (formAgent, error)
}

// formAgent is the agent of a form of capture.
type formAgent struct {
	plugin    podAgent
	operators meshAgent
	inside    insider // nil if the agent enters no pods
	run       func(context.Context) error
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
	open := s.openInPod(drain)
	if o.settings.OnNode() {
		open = s.openOnNode()
	}
	return form{s.host, open}, nil
}

// withoutNotices is told that the kernel refuses to tell of changes.
func (s surroundings) withoutNotices(err error) {
	s.log.Warn("changes of rules by other programs are found in rounds only: grant NET_BROADCAST to have them noticed", "error", err)
}

// observeHost is told how the host is.
func (s surroundings) observeHost(err error) {
	s.report.host(err)
	if err != nil {
		s.log.Error("the host's rules are not as they should be", "error", err)
		return
	}
	s.log.Info("the host's rules are as they should be again")
}
