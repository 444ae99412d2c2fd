// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Errors for errors.Is.
var (
	// ErrNoPlugins means that a document has neither "plugins" nor "type". libcni 1.3 takes the
	// plugins of such a list from the directory named after the network, so there is no array to
	// edit.
	ErrNoPlugins = errors.New(`the document has neither "plugins" nor "type"`)
	// ErrStandalone means that a document is the plugin's own single configuration. It has no list
	// to edit: the whole file is the plugin's.
	ErrStandalone = errors.New("the document is the plugin's own single configuration, not a list")
	// ErrPlugin means that a [Plugin] given to [Insert] cannot be an entry of a list.
	ErrPlugin = errors.New("invalid plugin entry")
	// ErrNoPrimary means that a directory has no file that runtimes load; see [NoPrimaryError].
	ErrNoPrimary = errors.New("no valid CNI network configuration")
)

// SyntaxError is the position in a document and the reason why the document is refused.
type SyntaxError struct {
	// Line counts from 1; lines end in a line feed.
	Line int
	// Column counts bytes within the line, from 1.
	Column int
	// Err is the reason.
	Err error
}

// Error returns the position and the reason.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %v", e.Line, e.Column, e.Err)
}

// Unwrap returns the reason.
func (e *SyntaxError) Unwrap() error { return e.Err }

func syntaxError(doc []byte, offset int, reason error) *SyntaxError {
	before := doc[:offset]
	return &SyntaxError{
		Line:   1 + bytes.Count(before, []byte("\n")),
		Column: offset - bytes.LastIndexByte(before, '\n'),
		Err:    reason,
	}
}

// NoPrimaryError lists the files that [Primary] skipped. errors.Is(err, ErrNoPrimary) holds for it.
type NoPrimaryError struct {
	// Skipped are the files with one of the three extensions, in the order of a runtime.
	Skipped []SkippedFile
}

// SkippedFile is a file that no runtime loads.
type SkippedFile struct {
	// Name is the file's name in the directory.
	Name string
	// Err is the reason.
	Err error
}

// Error lists every file with its reason.
func (e *NoPrimaryError) Error() string {
	if len(e.Skipped) == 0 {
		return fmt.Sprintf("%v: there is no file named .conflist, .conf or .json: install the cluster's network plugin", ErrNoPrimary)
	}
	reasons := make([]string, len(e.Skipped))
	for i, s := range e.Skipped {
		reasons[i] = fmt.Sprintf("%s: %v", s.Name, s.Err)
	}
	return fmt.Sprintf("%v: correct one of these: %s", ErrNoPrimary, strings.Join(reasons, "; "))
}

// Unwrap returns [ErrNoPrimary] and the reason of each file.
func (e *NoPrimaryError) Unwrap() []error {
	errs := []error{ErrNoPrimary}
	for _, s := range e.Skipped {
		errs = append(errs, s.Err)
	}
	return errs
}
