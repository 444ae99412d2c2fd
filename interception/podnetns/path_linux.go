// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
)

// followPaths follows a lead to the paths where a runtime reported that it had mounted the pod's
// namespace. These are paths of the host: only their last element means something here. If the lead
// knows the namespace's identity, the mount must have it too.
func (s *search) followPaths(lead Lead, paths []string, known interception.NetnsID, of journal.Attachment) {
	for _, path := range paths {
		if strings.HasPrefix(path, "/proc/") {
			// The process id may belong to another process by now; the processes are looked at
			// anyway.
			continue
		}
		ns, at, err := s.mounted(filepath.Base(path))
		lead := lead
		lead.At += " at " + at
		if err != nil {
			s.failed(lead, err)
			continue
		}
		if lead.Netns = ns.ID(); known != (interception.NetnsID{}) && ns.ID() != known {
			_ = ns.Close()
			s.against(lead, ObstacleVanished, "the namespace has changed since then")
			continue
		}
		s.take(lead, ns)
		if s.counted(lead.Source, lead.Netns) != nil && (s.attachment == journal.Attachment{} || of.Interface < s.attachment.Interface) {
			s.attachment, s.path = of, path
		}
	}
}

// mounted opens the namespace of that name in one of the runtimes' directories.
func (r *Records) mounted(name string) (ns *interception.Netns, at string, err error) {
	at, err = name, fs.ErrNotExist
	for _, directory := range r.roots.Netns {
		at = filepath.Join(directory, name)
		if ns, err = interception.OpenNetns(at, r.options()); err == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return ns, at, err
}

// present reports whether a recorded namespace is still mounted where the runtime put it.
func (r *Records) present(record journal.Record) bool {
	ns, _, err := r.mounted(filepath.Base(record.Netns))
	if err != nil {
		return false
	}
	defer ns.Close() //nolint:errcheck // only looked at
	return ns.ID() == record.NetnsID
}

// nothing returns why no lead counts. For a better reason, it looks for namespaces that have the
// pod's address, although no lead shows that they are the pod's.
func (s *search) nothing() error {
	suspects, err := s.suspects()
	if err != nil {
		return err
	}
	for _, suspect := range suspects {
		lead := suspect.lead
		switch {
		case suspect.err != nil:
			s.against(lead, ObstacleUnreadable, suspect.err.Error())
		case slices.ContainsFunc(s.leads, func(l Lead) bool { return l.Netns == lead.Netns }):
		case s.pod.hasOneOf(suspect.addresses):
			s.against(lead, ObstacleUnproven, "it has the pod's address, and nothing shows that it is the pod's")
		}
	}
	for _, known := range []struct {
		obstacle Obstacle
		detail   string
	}{
		{ObstacleUnreadable, "what may lead to its network namespace cannot be read"},
		{ObstacleAnotherAddress, "what leads to it has none of its addresses"},
		{ObstacleAnotherUID, "the node knows another pod of this name"},
		{ObstacleUnproven, "a network namespace has its address, and nothing shows that it is the pod's"},
		{ObstacleHostNetwork, "what leads to it ends in the host's network namespace, or in this process's own"},
		{ObstacleVanished, "what led to it is gone"},
	} {
		if slices.ContainsFunc(s.leads, func(l Lead) bool { return l.Obstacle == known.obstacle }) {
			return s.refusal(known.obstacle, known.detail, s.leads)
		}
	}
	return s.refusal(ObstacleNotFound, "nothing on this node leads to its network namespace", s.leads)
}
