// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/repair"
)

// Finder finds the network namespaces of a node's pods. It is safe for use by several goroutines. Make it with [NewFinder].
type Finder struct {
	roots   Roots
	journal journal.Journal
	records index[journal.Record]
	results index[result]
}

// NewFinder reads nothing yet. The error is about the roots; on other systems than Linux it wraps [interception.ErrUnsupported].
func NewFinder(r Roots) (*Finder, error) {
	if err := errors.Join(r.Validate(), supported()); err != nil {
		return nil, fmt.Errorf("find network namespaces of pods: %w", err)
	}
	f := &Finder{roots: r, journal: journal.Journal{Directory: r.Journal}}
	f.records = index[journal.Record]{directory: r.Journal, read: f.identity}
	f.results = index[result]{directory: r.Results, read: func(name string) (result, error) { return readResult(r.Results, name) }}
	return f, nil
}

// identity reads a record without its plan, which is the most of it.
func (f *Finder) identity(name string) (journal.Record, error) {
	attachment, is := journal.AttachmentOf(name)
	if !is {
		return journal.Record{}, nil
	}
	record, err := f.journal.Read(attachment)
	record.Plan = nil
	return record, err
}

// Found is a pod's network namespace.
type Found struct {
	// Netns is the namespace: open, and the caller's to close.
	Netns *interception.Netns
	// Leads are those that count.
	Leads []Lead

	attachment journal.Attachment // zero where it isn't known
	path       string             // as the runtime has it
}

// Find finds the network namespace of the pod, by its UID, and opens it. It changes nothing. Of the pod it takes namespace, name, UID, IPs,
// HostNetwork, and of its containers' statuses the ids. The error is a [*RefusalError], or the context's.
func (f *Finder) Find(ctx context.Context, pod repair.Pod) (*Found, error) {
	return f.findBy(ctx, pod, true)
}

// findBy is Find. One that isn't thorough asks no process where a record leads to the pod: that is enough to look at a namespace, and nothing
// is changed before a thorough one.
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

// Record is what was recorded when rules were applied to the pod with this UID, the latest where its network was made more than once. Where
// there is none, it is that of another pod of the same name, or nil. The error says what cannot be read.
func (f *Finder) Record(pod repair.Pod) (*repair.Record, error) {
	record, err := f.record(pod)
	if record == nil {
		return nil, err
	}
	return &repair.Record{UID: record.UID, Time: record.Time, Planner: record.Planner, Plan: record.Plan}, err
}

func (f *Finder) record(pod repair.Pod) (*journal.Record, error) {
	latest, damaged, err := f.latest(pod)
	if err != nil {
		return nil, fmt.Errorf("look for what was recorded of pod %s: %w", pod.Target(), err)
	}
	if latest != nil && latest.UID == pod.UID {
		damaged = nil
	}
	if damaged != nil {
		damaged = fmt.Errorf("a record that may be that of pod %s cannot be read: %w; have the pod that it is of created again",
			pod.Target(), damaged)
	}
	if latest == nil {
		return nil, damaged
	}
	whole, err := f.journal.Read(latest.Attachment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged // it has just gone
	}
	if err != nil {
		return nil, fmt.Errorf("read what was recorded of pod %s: %w", pod.Target(), err)
	}
	return &whole, damaged
}

// latest is the pod's latest record without its plan, or for want of one that of another pod of the name; and what is wrong with a record of
// whomever.
func (f *Finder) latest(pod repair.Pod) (latest *journal.Record, damaged, err error) {
	entries, err := f.records.entries()
	for _, entry := range entries {
		record := entry.value
		own := record.UID == pod.UID
		switch {
		case entry.err != nil && !errors.Is(entry.err, fs.ErrNotExist):
			damaged = entry.err
		case record.Namespace != pod.Namespace || record.Name != pod.Name:
		case latest == nil, own && latest.UID != pod.UID, own == (latest.UID == pod.UID) && record.Time.After(latest.Time):
			latest = &record
		}
	}
	return latest, damaged, err
}

// forgetIfGone takes a record back whose namespace has been taken away by the runtime meanwhile: a DEL has been before it, and no other will
// come.
func (f *Finder) forgetIfGone(r journal.Record) error {
	if f.present(r) {
		return nil
	}
	return f.journal.Remove(r.Attachment)
}
