// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/repair"
)

// Records know which pods of a node the plugin has captured, from what it recorded. Reading them
// takes neither a capability nor a proc file system, for operators who grant neither. They
// distinguish a pod that was started without the plugin from one that was captured at its start.
// Only a [Repairer] sees that a pod has lost its rules since.
//
// Records are safe for concurrent use. Create them with [NewRecords].
type Records struct {
	journal journal.Journal
	known   index[journal.Record]
	results index[result]
}

// NewRecords reads nothing yet. It uses two of the roots: Journal, which is required, and Results,
// which distinguishes the record of a pod's sandbox from one that an earlier sandbox left.
func NewRecords(r Roots) (*Records, error) {
	err := r.Validate()
	if r.Journal == "" {
		err = errors.Join(err, errors.New("the journal's directory is needed"))
	}
	if err != nil {
		return nil, fmt.Errorf("read what was recorded of pods: %w", err)
	}
	return newRecords(r), nil
}

func newRecords(r Roots) *Records {
	records := &Records{journal: journal.Journal{Directory: r.Journal}}
	records.known = index[journal.Record]{directory: r.Journal, read: records.identity}
	records.results = index[result]{directory: r.Results, read: func(name string) (result, error) { return readResult(r.Results, name) }}
	return records
}

// Observe returns what was recorded of a pod, or that it has no record. The error reports what
// cannot be read: then a pod without a record may have one.
func (r *Records) Observe(_ context.Context, pod repair.Pod) (repair.Observation, error) {
	record, err := r.record(pod)
	if record != nil && record.UID == pod.UID {
		left, unknown := r.leftBehind(record)
		err = errors.Join(err, unknown)
		if left {
			record = nil
		}
	}
	return r.observed(pod, record, err), err
}

// observed returns an observation from the records alone. The error comes from reading them.
func (r *Records) observed(pod repair.Pod, record *journal.Record, err error) repair.Observation {
	seen := repair.Observation{UID: pod.UID}
	if record != nil {
		seen.Record = &repair.Record{UID: record.UID, Time: record.Time, Planner: record.Planner, Plan: record.Plan}
	}
	seen.Unrecorded = r.journal.Directory != "" && err == nil && (record == nil || record.UID != pod.UID)
	return seen
}

// Repair refuses: the records lead to no network namespace.
func (r *Records) Repair(_ context.Context, pod repair.Pod, _ *interception.Plan) error {
	return &RefusalError{Pod: pod.Target(), Reason: ReasonUnreadable, Detail: "network namespaces are not looked into here"}
}

// leftBehind reports whether the record belongs to a sandbox that the pod no longer has. If a
// runtime restarts a pod's sandbox while the plugin is missing from the network configuration, it
// calls the plugin neither for the old sandbox nor for the new one, and the old record stays.
// libcni's cache has the new sandbox.
func (r *Records) leftBehind(record *journal.Record) (bool, error) {
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

// record returns the record of the pod with this UID, the latest if its network was set up more
// than once. If there is none, it returns that of another pod of the same name, or nil. The error
// reports what cannot be read.
func (r *Records) record(pod repair.Pod) (*journal.Record, error) {
	latest, damaged, err := r.latest(pod)
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
	whole, err := r.journal.Read(latest.Attachment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged // removed meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("read what was recorded of pod %s: %w", pod.Target(), err)
	}
	return &whole, damaged
}

// latest returns the pod's latest record without its plan, or else that of another pod of the same
// name. damaged is the error of a record that cannot be read, of any pod.
func (r *Records) latest(pod repair.Pod) (latest *journal.Record, damaged, err error) {
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

// maxResult bounds what is read of an entry of libcni's cache. Entries have a few KiB.
const maxResult = 1 << 20

// result is an entry of libcni's cache: what a runtime requested for a pod's network, and the
// result.
type result struct {
	attachment journal.Attachment
	// namespace, name and uid are the pod's, as the runtime passed them to the plugins.
	namespace, name, uid string
	paths                []string
}

// readResult reads <network>-<container>-<interface> in the cache (libcni/api.go, cachedInfo).
func readResult(directory, name string) (result, error) {
	data, err := filesystem.Directory{Path: directory}.Read(name, maxResult)
	if err != nil {
		return result{}, err
	}
	var cached struct {
		Kind        string      `json:"kind"`
		ContainerID string      `json:"containerId"`
		Interface   string      `json:"ifName"`
		Network     string      `json:"networkName"`
		Netns       string      `json:"netns"` // since libcni 1.2
		Args        [][2]string `json:"cniArgs"`
		Result      struct {
			Interfaces []struct {
				Sandbox string `json:"sandbox"`
			} `json:"interfaces"`
		} `json:"result"`
	}
	if err := json.Unmarshal(data, &cached); err != nil {
		return result{}, fmt.Errorf("%s is no entry of libcni's cache: %w", name, err)
	}
	r := result{attachment: journal.Attachment{Network: cached.Network, ContainerID: cached.ContainerID, Interface: cached.Interface}}
	for _, arg := range cached.Args {
		switch arg[0] {
		case "K8S_POD_NAMESPACE":
			r.namespace = arg[1]
		case "K8S_POD_NAME":
			r.name = arg[1]
		case "K8S_POD_UID":
			r.uid = arg[1]
		}
	}
	if cached.Netns != "" {
		r.paths = append(r.paths, cached.Netns)
	}
	for _, i := range cached.Result.Interfaces {
		if i.Sandbox != "" && (len(r.paths) == 0 || r.paths[len(r.paths)-1] != i.Sandbox) {
			r.paths = append(r.paths, i.Sandbox)
		}
	}
	return r, nil
}

// index caches the content of a directory's files, so that looking for a hundred pods reads each
// file once.
type index[T any] struct {
	directory string
	// read reads a file by its name.
	read func(name string) (T, error)

	mu    sync.Mutex
	known map[string]indexed[T]
}

// indexed is a file's content, and the file's metadata when it was read.
type indexed[T any] struct {
	info  fs.FileInfo
	value T
	err   error
}

// entries returns the current content of the files. A missing directory has no entries.
func (x *index[T]) entries() (map[string]indexed[T], error) {
	if x.directory == "" {
		return nil, nil
	}
	files, err := os.ReadDir(x.directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := make(map[string]indexed[T], len(files))
	for _, file := range files {
		info, err := os.Lstat(filepath.Join(x.directory, file.Name()))
		if err != nil || !info.Mode().IsRegular() {
			continue // removed meanwhile, or not one of our files
		}
		known, is := x.known[file.Name()]
		if !is || !sameVersion(known.info, info) {
			known = indexed[T]{info: info}
			known.value, known.err = x.read(file.Name())
		}
		now[file.Name()] = known
	}
	x.known = now
	return now, nil
}

func sameVersion(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
