// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/meshcni/meshcni/internal/filesystem/filesystemtest"
)

// buildProgram builds install-cni.
func buildProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "install-cni")
	if output, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	return program
}

// startProgram runs the program on a node until it is ready.
func (n *testNode) startProgram(program string, args ...string) (*exec.Cmd, *logBuffer) {
	n.t.Helper()
	return n.startProgramBy((*exec.Cmd).Start, program, "msg=ready", args...)
}

// startProgramBy is startProgram with another way to start it, and to know that it is far enough.
func (n *testNode) startProgramBy(start func(*exec.Cmd) error, program, until string, args ...string) (*exec.Cmd, *logBuffer) {
	n.t.Helper()
	log := newLogBuffer()
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = log, log
	command.Env = append([]string{}, environ(n.env)...)
	if err := start(command); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { command.Process.Kill() }) //nolint:errcheck // it has ended in most cases
	deadline := time.After(patience)
	for !strings.Contains(log.String(), until) {
		select {
		case <-log.written:
		case <-deadline:
			n.t.Fatalf("the program doesn't say %q:\n%s", until, log)
		}
	}
	return command, log
}

func TestProcess(t *testing.T) {
	t.Parallel()
	program := buildProgram(t)
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o644)
	before := n.files(n.netDir)

	first, log := n.startProgram(program)
	signalAndWait(t, first, syscall.SIGTERM, 0)
	if !n.hasEntry("10-bridge.conflist") || !strings.Contains(log.String(), "stays in place") {
		t.Errorf("SIGTERM took the entry away:\n%s", log)
	}

	second, _ := n.startProgram(program)
	signalAndWait(t, second, syscall.SIGKILL, -1)
	if !n.hasEntry("10-bridge.conflist") {
		t.Error("SIGKILL took the entry away")
	}

	third, _ := n.startProgram(program, "--uninstall-on-exit")
	signalAndWait(t, third, syscall.SIGINT, 0)
	for name, content := range n.files(n.netDir) {
		if before[name] != content {
			t.Errorf("left behind: %s %s", name, content)
		}
	}
	n.wantOnly("10-bridge.conf")
	n.wantPresent("istio-cni.uninstalled")
}

func signalAndWait(t *testing.T, command *exec.Cmd, signal os.Signal, code int) {
	t.Helper()
	if err := command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err := command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := command.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d after %v, want %d", got, signal, code)
	}
}

// TestAReaderAlwaysFindsAValidConfiguration loads the directory as a runtime does, again and again, while configurations are installed,
// restored and uninstalled.
func TestAReaderAlwaysFindsAValidConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o644)
	stop := n.watchPrimary(func([]byte) error { return nil })
	for range 5 {
		p := n.startReady()
		n.write(n.runDirParent(), "new", bridge, 0o644)
		mustRename(t, filepath.Join(n.runDirParent(), "new"), filepath.Join(n.netDir, "10-bridge.conf"))
		n.until("the configuration is a list again", n.netDir, func() bool {
			_, single := n.files(n.netDir)["10-bridge.conf"]
			return !single && n.hasEntry("10-bridge.conflist")
		})
		p.end()
		n.mustUninstall()
	}
	t.Logf("%d good loads", stop())
}

// watchPrimary has a reader load the primary configuration, as a runtime does, in a loop, until the returned function is called, which says how
// often it did. What it finds must be valid and pass the check.
func (n *testNode) watchPrimary(check func(primary []byte) error) (stop func() int) {
	n.t.Helper()
	end, ended := make(chan struct{}), make(chan struct{})
	loads := 0
	var failure error
	go func() {
		defer close(ended)
		for failure == nil {
			select {
			case <-end:
				return
			default:
			}
			primary, err := readPrimary(n.netDir)
			if err == nil {
				err = check(primary)
			}
			failure = err
			loads++
		}
	}()
	return func() int {
		n.t.Helper()
		close(end)
		<-ended
		if failure != nil {
			n.t.Errorf("the reader finds, after %d good loads: %v", loads-1, failure)
		}
		return loads
	}
}

// loadPrimary loads the first configuration of a directory with the runtimes' library.
func loadPrimary(directory string) error {
	_, err := readPrimary(directory)
	return err
}

// readPrimary is the first configuration of a directory, which must be valid. A file that goes between the listing and the reading has the
// runtime list again.
func readPrimary(directory string) ([]byte, error) {
	files, err := libcni.ConfFiles(directory, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no configuration")
	}
	slices.Sort(files)
	data, err := os.ReadFile(files[0])
	if errors.Is(err, fs.ErrNotExist) {
		return readPrimary(directory)
	}
	if err != nil {
		return nil, err
	}
	return data, load(files[0], data)
}

// load parses a configuration as runtimes do.
func load(name string, data []byte) (err error) {
	if strings.HasSuffix(name, ".conflist") {
		_, err = libcni.NetworkConfFromBytes(data)
	} else {
		_, err = libcni.ConfFromBytes(data) //nolint:staticcheck // runtimes still call it
	}
	if err != nil {
		return errors.Join(err, errors.New(string(bytes.TrimSpace(data))))
	}
	return nil
}

// loadPrimaryOf loads the first configuration of a directory that is a tree.
func loadPrimaryOf(networks filesystemtest.Tree) error {
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) {
			return load(name, []byte(networks[name].Content))
		}
	}
	return errors.New("no configuration")
}
