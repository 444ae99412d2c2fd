// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"context"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// walk is what one pass over all processes of the node shows.
type walk struct {
	// pods are the processes of each pod, by its UID, and unnamed those whose cgroups name no pod
	// but something as long as a container id.
	pods    map[string][]sighting
	unnamed []sighting
	// owners are processes in each namespace, at most one for each of two pods.
	owners map[interception.NetnsID][]sighting
	// first is a process in each namespace.
	first []sighting
	// err is why the processes cannot be listed.
	err error
}

// sighting is a process as the walk has seen it. Its id may be another's by now.
type sighting struct {
	pid   int
	whose membership
	// netns is the process's namespace; err is why it is not known.
	netns interception.NetnsID
	err   error
}

func (s sighting) String() string { return process{pid: s.pid}.String() }

// walkProcesses passes over all processes. The error is the context's.
func walkProcesses(ctx context.Context, root string) (*walk, error) {
	pids, err := processes(root)
	w := &walk{pods: map[string][]sighting{}, owners: map[interception.NetnsID][]sighting{}, err: err}
	known := map[interception.NetnsID]bool{}
	for _, pid := range pids {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p, err := openProcess(root, pid)
		if err != nil {
			continue // the process has ended
		}
		s := sighting{pid: pid}
		s.netns, s.err = p.netnsID()
		if s.err == nil && !known[s.netns] {
			known[s.netns] = true
			w.first = append(w.first, s)
		}
		if s.whose, err = p.membership(); err == nil && !s.whose.monitor {
			w.add(s)
		}
		p.close()
	}
	return w, nil
}

func (w *walk) add(s sighting) {
	if s.whose.pod == "" {
		if slices.ContainsFunc(s.whose.containers, func(name string) bool { return len(name) >= minContainerID }) {
			w.unnamed = append(w.unnamed, s)
		}
		return
	}
	w.pods[s.whose.pod] = append(w.pods[s.whose.pod], s)
	owners := w.owners[s.netns]
	same := func(o sighting) bool { return o.whose.pod == s.whose.pod }
	if s.err == nil && len(owners) < 2 && !slices.ContainsFunc(owners, same) {
		w.owners[s.netns] = append(owners, s)
	}
}

// ofPod returns the pod's processes, in the order of the walk within each of the two kinds.
func (w *walk) ofPod(pod Pod) []sighting {
	own := slices.Clone(w.pods[pod.UID])
	for _, s := range w.unnamed {
		if s.whose.isOf(pod) {
			own = append(own, s)
		}
	}
	return own
}

// ofAnother describes a process of another pod than the one searched for in the namespace; empty if
// the walk has seen none.
func (s *search) ofAnother(id interception.NetnsID) string {
	walked, err := s.processes()
	if err != nil {
		return "" // the search ends with this error before
	}
	for _, owner := range walked.owners[id] {
		if owner.whose.pod != s.pod.UID {
			return fmt.Sprintf("%s of a pod with uid %s", owner, owner.whose.pod)
		}
	}
	return ""
}
