// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/repair"
)

// Finder finds the network namespaces of a node's pods. It is safe for concurrent use. Create it
// with [NewFinder].
type Finder struct {
	roots   Roots
	records *Records
}

// NewFinder returns a Finder, and reads nothing yet. The error is about the roots; on other systems
// than Linux it wraps [interception.ErrUnsupported].
func NewFinder(r Roots) (*Finder, error) {
	if err := errors.Join(r.Validate(), supported()); err != nil {
		return nil, fmt.Errorf("find network namespaces of pods: %w", err)
	}
	return &Finder{r, newRecords(r)}, nil
}

// Found is a pod's network namespace.
type Found struct {
	// Netns is the open namespace. The caller closes it.
	Netns *interception.Netns
	// Leads are those that count.
	Leads []Lead

	attachment journal.Attachment // zero if it is not known
	path       string             // in the runtime's file system
}

// Find finds the network namespace of the pod by its UID, and opens it. It changes nothing. It uses
// the pod's namespace, name, UID, IPs and HostNetwork, and the ids of its containers' statuses. The
// error is a [*RefusalError], or the context's.
func (f *Finder) Find(ctx context.Context, pod repair.Pod) (*Found, error) {
	return f.findBy(ctx, pod, true)
}

// findBy is Find. Unless it is thorough, it looks at no process if a record leads to the pod: this
// is enough to observe a namespace, and a thorough search precedes every change.
func (f *Finder) findBy(ctx context.Context, pod repair.Pod, thorough bool) (*Found, error) {
	refuse := func(reason Reason, detail string) error {
		return &RefusalError{Pod: pod.Target(), Reason: reason, Detail: detail}
	}
	switch {
	case pod.HostNetwork:
		return nil, refuse(ReasonHostNetwork, "it shares the host's network namespace")
	case pod.UID == "":
		return nil, refuse(ReasonIncomplete, "its UID isn't known, so that another could be hit")
	case len(pod.IPs) == 0:
		return nil, refuse(ReasonIncomplete, "it has no address by which its network namespace could be verified")
	}
	return f.find(ctx, pod, thorough)
}

// Record returns what was recorded when rules were applied to the pod with this UID; the latest
// record, if its network was set up more than once. If there is none, Record returns that of
// another pod of the same name, or nil. The error reports what cannot be read.
func (f *Finder) Record(pod repair.Pod) (*repair.Record, error) {
	record, err := f.records.record(pod)
	if record == nil {
		return nil, err
	}
	return &repair.Record{UID: record.UID, Time: record.Time, Planner: record.Planner, Plan: record.Plan}, err
}

// forgetIfGone removes a record again if the runtime has removed its namespace meanwhile: the DEL
// came before the record, and no other will follow.
func (f *Finder) forgetIfGone(r journal.Record) error {
	if f.present(r) {
		return nil
	}
	return f.records.journal.Remove(r.Attachment)
}

// Roots are the directories of the node's files, as this process sees them. In a container each is
// a mount of the host's directory. An empty one is not searched, except Proc; the more of them are
// given, the more surely a pod is found.
type Roots struct {
	// Proc is a proc file system whose process 1 is the host's; "/proc" if empty. Opening other
	// users' namespaces through it takes CAP_SYS_PTRACE.
	Proc string
	// Netns are the directories in which container runtimes mount network namespaces: "/run/netns",
	// and "/run/docker/netns" for Docker. In a container they need mountPropagation
	// HostToContainer; otherwise later mounts are invisible.
	Netns []string
	// Results is libcni's cache of results: "/var/lib/cni/results".
	Results string
	// Journal is the directory in which the plugin records what it applies; see package
	// interception/journal.
	Journal string
}

// Validate returns an error for each path that is not absolute.
func (r Roots) Validate() error {
	var errs []error
	for _, path := range append([]string{r.Proc, r.Results, r.Journal}, r.Netns...) {
		if path != "" && !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("the path %q is not absolute", path))
		}
	}
	return errors.Join(errs...)
}

func (r Roots) proc() string { return cmp.Or(r.Proc, "/proc") }
