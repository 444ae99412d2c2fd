// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/internal/namespace"
)

func supported() error { return nil }

// What the refusals of a pod say that cannot have a namespace of its own, or not yet.
const (
	hostNetworkDetail = "it shares the host's network namespace"
	noAddressDetail   = "it has no address by which its network namespace could be verified"
)

// search is one search for a pod's namespace.
type search struct {
	*Finder
	*census
	pod   Pod
	leads []Lead
	// found are the namespaces at the end of leads that count.
	found []*interception.Netns
	// attachment is the pod's network as plugins know it, and path is where the runtime has mounted
	// the namespace; the first interface counts.
	attachment journal.Attachment
	path       string
	// cached are all of the pod's results in libcni's cache, whether they lead to its namespace or
	// not.
	cached []result
}

func (f *Finder) findAll(ctx context.Context, pods []Pod) []Finding {
	read := f.newCensus(ctx)
	findings := make([]Finding, len(pods))
	for i, pod := range pods {
		if findings[i].Err = context.Cause(ctx); findings[i].Err == nil {
			findings[i].Found, findings[i].Err = f.findIn(ctx, read, pod, true)
		}
	}
	return findings
}

func (f *Finder) find(ctx context.Context, pod Pod, thorough bool) (*Found, error) {
	return f.findIn(ctx, f.newCensus(ctx), pod, thorough)
}

func (f *Finder) findIn(ctx context.Context, read *census, pod Pod, thorough bool) (_ *Found, err error) {
	s := &search{Finder: f, census: read, pod: pod}
	defer func() {
		if err != nil {
			for _, ns := range s.found {
				_ = ns.Close()
			}
		}
	}()
	if err := s.follow(ctx, thorough); err != nil {
		return nil, err
	}
	switch {
	case len(s.found) == 0:
		return nil, s.nothing()
	case len(s.found) > 1:
		return nil, s.refusal(ObstacleAmbiguous, fmt.Sprintf("%d network namespaces may be its own", len(s.found)), s.counting())
	}
	ns := s.found[0]
	if thorough || s.counted(SourceProcesses, ns.ID()) != nil {
		if other := s.ofAnother(ns.ID()); other != "" {
			return nil, s.refusal(ObstacleShared, "in the network namespace is "+other, s.counting())
		}
	}
	if s.attachment == (journal.Attachment{}) {
		s.attachment, s.path = s.onlyAttachment(), ""
	}
	return &Found{Netns: ns, Leads: s.counting(), Attachment: s.attachment, Path: s.path}, nil
}

// follow follows every lead to the pod; those by processes only if the search is thorough or found
// nothing else.
func (s *search) follow(ctx context.Context, thorough bool) error {
	switch {
	case s.pod.HostNetwork:
		return s.refusal(ObstacleHostNetwork, hostNetworkDetail, nil)
	case s.pod.UID == "":
		return s.refusal(ObstacleIncomplete, "its UID isn't known, so that another could be hit", nil)
	case len(s.pod.IPs) == 0:
		return s.refusal(ObstacleIncomplete, noAddressDetail, nil)
	}
	if err := s.byJournal(ctx); err != nil {
		return err
	}
	if err := s.byResults(ctx); err != nil {
		return err
	}
	if thorough || len(s.found) == 0 {
		return s.byProcesses()
	}
	return nil
}

// onlyAttachment returns the pod's first attachment; zero if the cache knows several sandboxes of
// the pod.
func (s *search) onlyAttachment() journal.Attachment {
	var first journal.Attachment
	for _, cached := range s.cached {
		switch of := cached.attachment; {
		case first.ContainerID != "" && of.ContainerID != first.ContainerID:
			return journal.Attachment{}
		case first.ContainerID == "" || of.Interface < first.Interface:
			first = of
		}
	}
	return first
}

// byJournal follows the plugin's records.
func (s *search) byJournal(ctx context.Context) error {
	entries, err := s.records()
	if err != nil {
		s.against(Lead{Source: SourceJournal, At: s.roots.Journal}, ObstacleUnreadable, err.Error())
	}
	for name, entry := range entries {
		record := entry.value
		lead := Lead{Source: SourceJournal, At: name}
		switch {
		case entry.err != nil && !errors.Is(entry.err, fs.ErrNotExist):
			s.against(lead, ObstacleUnreadable, entry.err.Error())
		case record.Namespace != s.pod.Namespace || record.Name != s.pod.Name:
		case record.UID != s.pod.UID:
			s.against(lead, ObstacleAnotherUID, fmt.Sprintf("it is of a pod of this name with uid %q", record.UID))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			s.followPaths(lead, []string{record.Netns}, record.NetnsID, record.Attachment)
		}
	}
	return nil
}

// byResults follows libcni's cache. Its entries also have the ids of the pod's sandboxes, by which
// cgroups may name the pod.
func (s *search) byResults(ctx context.Context) error {
	entries, err := s.results()
	if err != nil {
		s.against(Lead{Source: SourceResults, At: s.roots.Results}, ObstacleUnreadable, err.Error())
	}
	for name, entry := range entries {
		cached := entry.value
		lead := Lead{Source: SourceResults, At: name}
		switch {
		// This also skips entries that cannot be read: other programs may use the cache.
		case cached.namespace != s.pod.Namespace || cached.name != s.pod.Name:
		case cached.uid == "":
			s.against(lead, ObstacleUnproven, "the runtime has not named the pod's UID")
		case cached.uid != s.pod.UID:
			s.against(lead, ObstacleAnotherUID, fmt.Sprintf("it is of a pod of this name with uid %q", cached.uid))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			s.cached = append(s.cached, cached)
			s.pod.Containers = append(slices.Clip(s.pod.Containers), cached.attachment.ContainerID)
			s.followPaths(lead, cached.paths, interception.NetnsID{}, cached.attachment)
		}
	}
	return nil
}

// byProcesses follows the cgroups of processes.
func (s *search) byProcesses() error {
	walked, err := s.processes()
	if err != nil {
		return err
	}
	if walked.err != nil {
		s.against(Lead{Source: SourceProcesses, At: s.roots.proc()}, ObstacleUnreadable, walked.err.Error())
	}
	for _, seen := range walked.ofPod(s.pod) {
		s.followProcess(seen)
	}
	return nil
}

// followProcess follows one of the pod's processes, unless it is in a namespace that another
// process led to.
func (s *search) followProcess(seen sighting) {
	lead := Lead{Source: SourceProcesses, At: seen.String(), Netns: seen.netns}
	switch {
	case seen.err != nil:
		s.failed(lead, seen.err)
	case !s.counts(seen.netns):
		s.openProcess(lead, seen)
	case s.counted(SourceProcesses, seen.netns) == nil:
		s.leads = append(s.leads, lead)
	}
}

// openProcess opens the namespace of a process, and then reads the cgroups of the process again: it
// may have been moved, or its id given to another process, since it was seen.
func (s *search) openProcess(lead Lead, seen sighting) {
	p, err := openProcess(s.roots.proc(), seen.pid)
	if err != nil {
		s.failed(lead, err)
		return
	}
	defer p.close()
	ns, err := p.netns(s.options())
	if err != nil {
		s.failed(lead, err)
		return
	}
	if again, err := p.membership(); err != nil || !again.isOf(s.pod) {
		_ = ns.Close()
		s.against(lead, ObstacleVanished, "it has ended or was moved meanwhile")
		return
	}
	s.take(lead, ns)
}

// take keeps a lead's namespace if it has one of the pod's addresses.
func (s *search) take(lead Lead, ns *interception.Netns) {
	lead.Netns = ns.ID()
	inside, err := namespace.Addresses(ns.File())
	switch {
	case err != nil:
		s.failed(lead, err)
	case !s.pod.hasOneOf(inside):
		s.against(lead, ObstacleAnotherAddress, fmt.Sprintf("none of its addresses %v is one of the pod's %v", inside, s.pod.IPs))
	case s.counts(ns.ID()):
		s.leads = append(s.leads, lead)
	default:
		s.leads, s.found = append(s.leads, lead), append(s.found, ns)
		return
	}
	_ = ns.Close()
}

// counts reports whether a lead that counts leads to the namespace.
func (s *search) counts(id interception.NetnsID) bool {
	return slices.ContainsFunc(s.found, func(ns *interception.Netns) bool { return ns.ID() == id })
}

// counted returns a lead of the source that counts and leads to the namespace.
func (s *search) counted(source Source, id interception.NetnsID) *Lead {
	for i, lead := range s.leads {
		if lead.Source == source && lead.Netns == id && lead.Against == "" {
			return &s.leads[i]
		}
	}
	return nil
}

func (s *search) counting() []Lead {
	return slices.DeleteFunc(slices.Clone(s.leads), func(l Lead) bool { return l.Against != "" })
}

// against notes a lead that does not count.
func (s *search) against(lead Lead, obstacle Obstacle, why string) {
	lead.Obstacle, lead.Against = obstacle, why
	s.leads = append(s.leads, lead)
}

// failed notes a lead that ended in an error.
func (s *search) failed(lead Lead, err error) {
	obstacle := ObstacleUnreadable
	switch {
	case errors.Is(err, interception.ErrHostNetns):
		obstacle = ObstacleHostNetwork
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), errors.Is(err, interception.ErrNotNetns):
		obstacle = ObstacleVanished
	}
	s.against(lead, obstacle, err.Error())
}

func (s *search) refusal(obstacle Obstacle, detail string, leads []Lead) error {
	return &RefusalError{Pod: s.pod, Obstacle: obstacle, Detail: detail, Leads: leads}
}
