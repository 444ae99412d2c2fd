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
	// maxRecord bounds what is read of a file: ten times what a plan with 10,000 networks has.
	maxRecord = 4 << 20
	// stale is the age from which a temporary file is of nobody that still writes.
	stale = time.Minute
)

// Journal is a journal's directory. Its methods may be called by several goroutines and processes at once, as plugins are for several pods.
type Journal struct {
	// Directory is its path, an absolute one. The directory is made by the first record, for its owner alone; the one it stands in has to
	// be there.
	Directory string
}

// Write keeps a record, in place of an earlier one of the same attachment. The error is [ErrAttachment], [ErrRecord] for one that has no
// plan, or a plan that can't be written, or is too large, [ErrDirectory], or what the system answered.
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

// Read returns the attachment's record. Where there is none, the error is [fs.ErrNotExist]; where it is damaged, of a version that is not
// known here, or of another attachment, [ErrRecord]; else [ErrAttachment], [ErrDirectory], or what the system answered.
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

// Remove forgets an attachment, and takes away what a crash left behind. It is nil when nothing was known of it.
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

// removeStale removes the files that killed writers left.
func (j Journal) removeStale() error {
	if j.check() != nil { // which forget has said
		return nil
	}
	_, err := j.directory().RemoveStale(time.Now().Add(-stale))
	if errors.Is(err, fs.ErrNotExist) { // there is no journal
		return nil
	}
	return err
}

// Attachments lists what there are records of, in the order of their names; nil when there is no journal.
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

// Keep forgets all attachments of a network but these, and what a crash left behind, as a GC asks a plugin to. It goes on after a failure,
// and returns what it forgot.
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

// check refuses a path that would lead elsewhere for each process.
func (j Journal) check() error {
	if !filepath.IsAbs(j.Directory) {
		return fmt.Errorf("%w: the path %q is not absolute", ErrDirectory, j.Directory)
	}
	return nil
}

// verify refuses a journal that somebody else could have written.
func (j Journal) verify() error {
	if err := j.check(); err != nil {
		return err
	}
	info, err := os.Lstat(j.Directory)
	if err != nil {
		return fmt.Errorf("look at the journal: %w", err)
	}
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %s is no directory that its owner alone may write (%s): remove it, and a new one is made",
			ErrDirectory, j.Directory, info.Mode())
	}
	return nil
}
