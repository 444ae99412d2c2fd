// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestIndexReadsAgainAfterAFailure has a read fail that the file is not to blame for, as with too
// many open files. The next look reads the same file again; the one after does not.
func TestIndexReadsAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "record"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	failure, reads := errors.New("too many open files"), 0
	x := &index[string]{directory: directory, read: func(name string) (string, error) {
		reads++
		if failure != nil {
			return "", failure
		}
		data, err := os.ReadFile(filepath.Join(directory, name))
		return string(data), err
	}}
	if entries, err := x.entries(); err != nil || !errors.Is(entries["record"].err, failure) {
		t.Errorf("first look: got %v and %v, want the read's error", entries, err)
	}
	failure = nil
	for range 2 {
		entries, err := x.entries()
		if got := entries["record"]; err != nil || got.err != nil || got.value != "content" {
			t.Errorf("after the failure: got %q, %v and %v, want the content", got.value, got.err, err)
		}
	}
	if reads != 2 {
		t.Errorf("the file was read %d times, want 2", reads)
	}
}
