// SPDX-License-Identifier: Apache-2.0

package spool_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/internal/spool"
)

func newSpool(t *testing.T, most int64) spool.Spool {
	t.Helper()
	return spool.Spool{Path: filepath.Join(t.TempDir(), "log"), MaxBytes: most}
}

func mustAppend(t *testing.T, s spool.Spool, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := s.Append([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

func collect(t *testing.T, s spool.Spool) []string {
	t.Helper()
	var all []string
	err := s.Collect(t.Context(), func(lines [][]byte) error {
		for _, line := range lines {
			all = append(all, string(line))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLinesAreCollectedOnce(t *testing.T) {
	t.Parallel()
	s := newSpool(t, 100)
	if got := collect(t, s); got != nil {
		t.Errorf("before anything was kept: %q", got)
	}
	mustAppend(t, s, "a", "b\nc\n")
	if got := collect(t, s); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %q", got)
	}
	if got := collect(t, s); got != nil {
		t.Errorf("again: %q", got)
	}
	mustAppend(t, s, "d")
	if got := collect(t, s); !slices.Equal(got, []string{"d"}) {
		t.Errorf("got %q", got)
	}
}

func TestTheOldestLinesAreLost(t *testing.T) {
	t.Parallel()
	s := newSpool(t, 10)
	for i := range 20 {
		mustAppend(t, s, fmt.Sprintf("%03d", i))
		for _, path := range []string{s.Path, s.Path + ".1"} {
			if info, err := os.Stat(path); err == nil && (info.Size() > s.MaxBytes || info.Mode() != 0o600) {
				t.Fatalf("%s: %d bytes, %s", path, info.Size(), info.Mode())
			}
		}
	}
	if got := collect(t, s); !slices.Equal(got, []string{"016", "017", "018", "019"}) {
		t.Errorf("got %q", got)
	}
	if err := s.Append(make([]byte, 11)); err == nil {
		t.Error("a text that is too long was taken")
	}
}

func TestALineThatWasCutShortEndsThere(t *testing.T) {
	t.Parallel()
	s := newSpool(t, 100)
	if err := os.WriteFile(s.Path, []byte("whole\ncut sho"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, "next")
	if got := collect(t, s); !slices.Equal(got, []string{"whole", "cut sho", "next"}) {
		t.Errorf("got %q", got)
	}
}

func TestWhatACollectorCouldNotTakeComesAgain(t *testing.T) {
	t.Parallel()
	s := newSpool(t, 100)
	mustAppend(t, s, "a")
	crash := errors.New("crash")
	if err := s.Collect(t.Context(), func([][]byte) error { return crash }); !errors.Is(err, crash) {
		t.Errorf("got %v", err)
	}
	mustAppend(t, s, "b")
	if got := collect(t, s); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q", got)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newSpool(t, 1<<20)
	const writers, each = 8, 50
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			for j := range each {
				// The spool is busy for long only if this machine is: nothing is lost unnoticed.
				err := s.Append(fmt.Appendf(nil, "%d-%d", i, j))
				for errors.Is(err, spool.ErrBusy) {
					err = s.Append(fmt.Appendf(nil, "%d-%d", i, j))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	var all []string
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		err := s.Collect(t.Context(), func(lines [][]byte) error {
			for _, line := range lines {
				all = append(all, string(line))
			}
			return nil
		})
		if err != nil && !errors.Is(err, spool.ErrBusy) {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	if len(all) != writers*each || len(slices.Compact(all)) != writers*each {
		t.Errorf("got %d lines, want %d", len(all), writers*each)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(path string) error{
		"a link":            func(path string) error { return os.Symlink("/dev/null", path) },
		"a directory":       func(path string) error { return os.Mkdir(path, 0o700) },
		"one that all read": func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o644)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpool(t, 100)
			if err := prepare(s.Path); err != nil {
				t.Fatal(err)
			}
			if err := s.Append([]byte("a")); err == nil || !strings.Contains(err.Error(), s.Path) {
				t.Errorf("got %v", err)
			}
		})
	}
	s := spool.Spool{Path: filepath.Join(t.TempDir(), "missing", "log"), MaxBytes: 100}
	if err := s.Append([]byte("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}
