// SPDX-License-Identifier: Apache-2.0

package upkeep_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/meshcni/meshcni/internal/upkeep"
)

func wantEvent(t *testing.T, w *upkeep.Watches, path string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case event := <-w.Events():
			if event.Name == path {
				return
			}
		case <-deadline:
			t.Fatalf("no event of %s", path)
		}
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestADirectoryThatAppearsLate(t *testing.T) {
	t.Parallel()
	late := filepath.Join(t.TempDir(), "late")
	w := upkeep.NewWatches(late)
	defer w.Close()
	if w.Events() != nil || w.Errors() != nil {
		t.Error("there are events before the first Ensure")
	}
	now := time.Now()
	if missed, err := w.Ensure(now); !missed || err == nil {
		t.Errorf("missed %v, %v, without the directory", missed, err)
	}
	at, retry := w.Retry()
	if !retry || !at.After(now) {
		t.Errorf("retry at %v, %v", at, retry)
	}
	if missed, err := w.Ensure(now); missed || err == nil {
		t.Errorf("missed %v, %v, before the pause is over", missed, err)
	}
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	w.Soon()
	if missed, err := w.Ensure(now); !missed || err != nil {
		t.Errorf("missed %v, %v, with the directory there", missed, err)
	}
	if missed, err := w.Ensure(now); missed || err != nil {
		t.Errorf("missed %v, %v, when all is watched", missed, err)
	}
	write(t, filepath.Join(late, "x"))
	wantEvent(t, w, filepath.Join(late, "x"))
}

func TestSet(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	w := upkeep.NewWatches(first, first)
	defer w.Close()
	if _, err := w.Ensure(time.Now()); err != nil {
		t.Fatal(err)
	}
	w.Set(second)
	if _, err := w.Ensure(time.Now()); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(first, "unseen"))
	write(t, filepath.Join(second, "seen"))
	if event := <-w.Events(); event.Name != filepath.Join(second, "seen") {
		t.Errorf("event of %s", event.Name)
	}
}

// TestADirectoryThatIsExchanged checks that no change after the exchange is lost.
func TestADirectoryThatIsExchanged(t *testing.T) {
	t.Parallel()
	for range 50 {
		directory := filepath.Join(t.TempDir(), "d")
		if err := os.Mkdir(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		w := upkeep.NewWatches(directory)
		if _, err := w.Ensure(time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Rename(directory, directory+".old"), os.Mkdir(directory, 0o755)); err != nil {
			t.Fatal(err)
		}
		missed, err := w.Ensure(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		wantEvent(t, w, directory)
		again, err := w.Ensure(time.Now())
		if err != nil || !missed && !again {
			t.Fatalf("nothing was missed; %v", err)
		}
		write(t, filepath.Join(directory, "x"))
		wantEvent(t, w, filepath.Join(directory, "x"))
		w.Close()
	}
}

// TestTwoPathsOfOneDirectory checks that they have one watch, and that none is reported missing.
func TestTwoPathsOfOneDirectory(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(directory, link); err != nil {
		t.Fatal(err)
	}
	w := upkeep.NewWatches(directory+"/", link, directory)
	defer w.Close()
	for i := range 3 {
		if missed, err := w.Ensure(time.Now()); missed != (i == 0) || err != nil {
			t.Errorf("missed %v, %v", missed, err)
		}
	}
}
