// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

const (
	// maxRecord bounds a file's size: ten times that of a plan with 10,000 networks.
	maxRecord = 4 << 20
	// stale is the age from which a temporary file has no writer any more.
	stale = time.Minute
)

// Journal is a journal's directory. Several goroutines and processes may use it at once.
type Journal struct {
	// Directory is the journal's absolute path. The first Write creates the directory for its owner
	// alone; the parent directory must exist.
	Directory string
}

// Write stores a record and replaces an earlier one of the same attachment. The error wraps
// [ErrAttachment], [ErrRecord] for a record that has no plan, cannot be encoded or is too large,
// [ErrDirectory], or the system's error.
func (j Journal) Write(r Record) error {
	name, err := r.fileName()
	if err != nil {
		return err
	}
	data, err := r.encode()
	if err == nil && len(data) > maxRecord {
		err = fmt.Errorf("it has %d bytes, and may have %d", len(data), maxRecord)
	}
	if err != nil {
		return fmt.Errorf("%w of %s: %w", ErrRecord, r.Attachment, err)
	}
	if err := j.check(); err != nil {
		return err
	}
	if err := os.Mkdir(j.Directory, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the journal: %w", err)
	}
	if err := j.verify(); err != nil {
		return err
	}
	if _, err := j.directory().Write(name, data, filesystem.Options{}); err != nil {
		return fmt.Errorf("keep the record of %s: %w", r.Attachment, err)
	}
	return nil
}

// Read returns the attachment's record. The error wraps [fs.ErrNotExist] for a missing record,
// [ErrRecord] for one that is damaged, of an unknown version or of another attachment,
// [ErrAttachment], [ErrDirectory], or the system's error.
func (j Journal) Read(a Attachment) (Record, error) {
	name, err := a.fileName()
	if err != nil {
		return Record{}, err
	}
	if err := j.verify(); err != nil {
		return Record{}, err
	}
	data, err := j.directory().Read(name, maxRecord)
	damaged := errors.Is(err, filesystem.ErrTooLarge) || errors.Is(err, filesystem.ErrNotRegular)
	if err != nil && !damaged {
		return Record{}, fmt.Errorf("read the record of %s: %w", a, err)
	}
	var record Record
	if err == nil {
		record, err = decode(data)
	}
	if err == nil && record.Attachment != a {
		err = fmt.Errorf("it is that of %s", record.Attachment)
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w of %s: %w", j.directory().In(name), ErrRecord, a, err)
	}
	return record, nil
}

// Remove removes an attachment's record, if it exists, and the files that a crash left.
func (j Journal) Remove(a Attachment) error {
	return errors.Join(j.forget(a), j.removeStale())
}

func (j Journal) forget(a Attachment) error {
	name, err := a.fileName()
	if err == nil {
		err = j.check()
	}
	if err == nil {
		_, err = j.directory().Remove(name)
	}
	return err
}

// removeStale removes the temporary files of killed writers.
func (j Journal) removeStale() error {
	if j.check() != nil { // forget has reported it
		return nil
	}
	_, err := j.directory().RemoveStale(time.Now().Add(-stale))
	if errors.Is(err, fs.ErrNotExist) { // there is no journal
		return nil
	}
	return err
}

// Attachments returns the attachments with a record, sorted by file name; nil without a journal.
func (j Journal) Attachments() ([]Attachment, error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(j.Directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the journal: %w", err)
	}
	var all []Attachment
	for _, file := range files {
		if a, ok := AttachmentOf(file.Name()); ok {
			all = append(all, a)
		}
	}
	return all, nil
}

// Keep implements GC: it removes all records of a network that are not in valid, and the files that
// a crash left. It continues after a failure and returns the removed attachments.
func (j Journal) Keep(network string, valid []Attachment) (forgotten []Attachment, err error) {
	all, err := j.Attachments()
	if err != nil || all == nil {
		return nil, err
	}
	var errs []error
	for _, a := range all {
		if a.Network != network || slices.Contains(valid, a) {
			continue
		}
		if err := j.forget(a); err != nil {
			errs = append(errs, err)
			continue
		}
		forgotten = append(forgotten, a)
	}
	return forgotten, errors.Join(append(errs, j.removeStale())...)
}

func (j Journal) directory() filesystem.Directory { return filesystem.Directory{Path: j.Directory} }

// check refuses a relative path, which would differ between processes.
func (j Journal) check() error {
	if !filepath.IsAbs(j.Directory) {
		return fmt.Errorf("%w: the path %q is not absolute", ErrDirectory, j.Directory)
	}
	return nil
}

// verify refuses a journal that users other than its owner may write.
func (j Journal) verify() error {
	if err := j.check(); err != nil {
		return err
	}
	info, err := os.Lstat(j.Directory)
	if err != nil {
		return fmt.Errorf("look at the journal: %w", err)
	}
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %s is not a directory that its owner alone may write (%s): remove it, and a new one is made",
			ErrDirectory, j.Directory, info.Mode())
	}
	return nil
}
