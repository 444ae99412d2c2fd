// SPDX-License-Identifier: Apache-2.0

package victim_test

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/testing/victim"
)

// TestRun starts victims that end by themselves, fail, and are killed.
func TestRun(t *testing.T) {
	t.Parallel()
	if task, is := victim.Task(); is {
		beVictim(t, task)
		return
	}
	start := func(task string) *victim.Process {
		process, err := victim.Start(t.Context(), t.Name(), task)
		if err != nil {
			t.Fatal(err)
		}
		return process
	}
	if end, err := start("end").Run(victim.Ending{}); err != nil || end.Killed || end.Took <= 0 {
		t.Errorf("one that ends: %+v, %v", end, err)
	}
	if end, err := start("fail").Run(victim.Ending{}); err == nil || !strings.Contains(err.Error(), "of the test") || end.Killed {
		t.Errorf("one that fails: %+v, %v", end, err)
	}
	for _, itself := range []bool{true, false} {
		if end, err := start("kill").Run(victim.Ending{Itself: itself}); (err == nil) != itself || !end.Killed {
			t.Errorf("one that kills itself, expected %t: %+v, %v", itself, end, err)
		}
	}
	for _, group := range []bool{true, false} {
		killWithChild(t, start, group)
	}
	if _, err := victim.Start(t.Context(), "TestOfNothing", "task"); err == nil {
		t.Error("a test that calls no Serve: no error")
	}
}

// killWithChild kills one that has a child, with the child or alone.
func killWithChild(t *testing.T, start func(task string) *victim.Process, group bool) {
	t.Helper()
	directory := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(directory, "child"), 0o600); err != nil {
		t.Fatal(err)
	}
	var child *bufio.Reader
	end, err := start(directory).Run(victim.Ending{Group: group, When: func() {
		file, err := os.Open(filepath.Join(directory, "child"))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = file.Close() })
		child = bufio.NewReader(file)
		if line, err := child.ReadString('\n'); err != nil || line != "here\n" {
			t.Errorf("the child says %q, %v", line, err)
		}
	}})
	if err != nil || !end.Killed {
		t.Fatalf("one that is killed: %+v, %v", end, err)
	}
	wantRemoved(t, filepath.Join(directory, "temporary"))
	if err := os.WriteFile(filepath.Join(directory, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if line, _ := child.ReadString('\n'); (line == "still here\n") == group {
		t.Errorf("group %t: the child says %q", group, line)
	}
}

// wantRemoved reads the path of a directory from a file, and tests that the directory is gone.
func wantRemoved(t *testing.T, file string) {
	t.Helper()
	directory, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(string(directory)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary files of one that is killed: %v", err)
	}
}

// beVictim does its task, or starts a child in the given directory and waits for it.
func beVictim(t *testing.T, task string) {
	t.Helper()
	if err := victim.Serve(func() error {
		switch task {
		case "end":
			return nil
		case "fail":
			return errors.New("of the test")
		case "kill":
			return errors.Join(unix.Kill(os.Getpid(), unix.SIGKILL), errors.New("still alive"))
		}
		if err := os.WriteFile(filepath.Join(task, "temporary"), []byte(t.TempDir()), 0o600); err != nil {
			return err
		}
		child := exec.CommandContext(t.Context(), "sh", "-c", `exec >child; echo here; until test -e go; do sleep 0.01; done; echo still here`)
		child.Dir = task
		return child.Run()
	}); err != nil {
		t.Fatal(err)
	}
}
