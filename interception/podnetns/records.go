// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/meshcni/meshcni/interception/journal"
)

// Records know which pods of a node the plugin has captured, from what it recorded. Reading them
// takes neither a capability nor a proc file system, for operators who grant neither. They are safe
// for concurrent use. Create them with [NewRecords], or as part of a [Finder].
type Records struct {
	roots   Roots
	journal journal.Journal
	known   index[journal.Record]
	results index[result]
}

// NewRecords reads nothing yet. It uses two of the roots: Journal, which is required, and Results,
// which distinguishes the record of a pod's sandbox from one that an earlier sandbox left.
func NewRecords(r Roots) (*Records, error) {
	err := r.validate()
	if r.Journal == "" {
		err = errors.Join(err, errors.New("the journal's directory is needed"))
	}
	if err != nil {
		return nil, fmt.Errorf("read what was recorded of pods: %w", err)
	}
	return newRecords(r), nil
}

func newRecords(r Roots) *Records {
	records := &Records{roots: r, journal: journal.Journal{Directory: r.Journal}}
	records.known = index[journal.Record]{directory: r.Journal, read: records.identity}
	records.results = index[result]{directory: r.Results, read: func(name string) (result, error) { return readResult(r.Results, name) }}
	return records
}

// HasJournal reports whether the roots have a Journal. Without one, no pod has a record.
func (r *Records) HasJournal() bool { return r.roots.Journal != "" }

// Record returns the record of the pod with this UID, the latest if its network was set up more
// than once. If there is none, it returns that of another pod of the same name, or nil; then an
// error may come with it, about a record that cannot be read and may be the pod's.
func (r *Records) Record(pod Pod) (*journal.Record, error) {
	latest, damaged, err := r.latest(pod)
	if err != nil {
		return nil, fmt.Errorf("look for what was recorded of pod %s: %w", pod, err)
	}
	if latest != nil && latest.UID == pod.UID {
		damaged = nil
	}
	if damaged != nil {
		damaged = fmt.Errorf("a record that may be that of pod %s cannot be read: %w; recreate the pod that it belongs to", pod, damaged)
	}
	if latest == nil {
		return nil, damaged
	}
	whole, err := r.journal.Read(latest.Attachment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged // removed meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("read what was recorded of pod %s: %w", pod, err)
	}
	return &whole, damaged
}

// latest returns the pod's latest record without its plan, or else that of another pod of the same
// name. damaged is the error of a record that cannot be read, of any pod.
func (r *Records) latest(pod Pod) (latest *journal.Record, damaged, err error) {
	entries, err := r.known.entries()
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

// identity reads a record without its plan, which is most of it.
func (r *Records) identity(name string) (journal.Record, error) {
	attachment, is := journal.AttachmentOf(name)
	if !is {
		return journal.Record{}, nil
	}
	record, err := r.journal.Read(attachment)
	record.Plan = nil
	return record, err
}

// LeftBehind reports whether the record belongs to a sandbox that the pod no longer has. If a
// runtime restarts a pod's sandbox while the plugin is missing from the network configuration, it
// calls the plugin neither for the old sandbox nor for the new one, and the old record stays.
// libcni's cache has the new sandbox.
func (r *Records) LeftBehind(record *journal.Record) (bool, error) {
	entries, err := r.results.entries()
	if err != nil {
		return false, fmt.Errorf("tell whether %s is still the sandbox of pod %s/%s: %w",
			record.ContainerID, record.Namespace, record.Name, err)
	}
	others := false
	for _, entry := range entries {
		cached := entry.value
		switch {
		case entry.err != nil || cached.uid != record.UID:
		case cached.attachment.ContainerID == record.ContainerID:
			return false, nil
		default:
			others = true
		}
	}
	return others, nil
}

// Write records what was applied in the namespace that Find has found; the roots need a Journal. If
// the runtime has unmounted the namespace meanwhile, Write removes the record again: the DEL came
// before it, and no other will follow.
func (f *Finder) Write(record journal.Record, in *Found) error {
	err := f.journal.Write(record)
	// Unless the path is known, nothing has shown that the namespace was mounted there.
	if known := record.Netns != "" && record.Netns == in.Path; err != nil || !known || f.present(record) {
		return err
	}
	return f.journal.Remove(record.Attachment)
}
