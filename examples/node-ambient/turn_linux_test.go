// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

// process is the program as a process of its own.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	input io.Closer
	news  chan struct{} // signals that there are new lines

	mu    sync.Mutex
	lines []string // of its report and of its log, from the first that was not awaited yet
}

// build builds the program.
func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "node-ambient")
	if output, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	return program
}

func begin(t testing.TB, program string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(program, args...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	p := &process{t: t, cmd: cmd, input: input, news: make(chan struct{}, 1)}
	go func() {
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, scanner.Text())
			p.mu.Unlock()
			select {
			case p.news <- struct{}{}:
			default: // news is pending already
			}
		}
	}()
	return p
}

// await waits for a line with a text, after the one that was awaited last.
func (p *process) await(text string) {
	p.t.Helper()
	for seen := 0; ; {
		p.mu.Lock()
		found := slices.IndexFunc(p.lines[seen:], func(line string) bool { return strings.Contains(line, text) })
		if found >= 0 {
			p.lines = p.lines[seen+found+1:]
		}
		seen = len(p.lines)
		p.mu.Unlock()
		if found >= 0 {
			return
		}
		select {
		case <-p.news:
		case <-time.After(time.Minute):
			p.mu.Lock()
			defer p.mu.Unlock()
			p.t.Fatalf("no line has %q:\n%s", text, strings.Join(p.lines, "\n"))
		}
	}
}

// end ends the process's standard input, and waits for its end.
func (p *process) end() {
	p.t.Helper()
	if err := errors.Join(p.input.Close(), p.cmd.Wait()); err != nil {
		p.t.Error(err)
	}
}

// isLocked reports whether a process has the turn.
func isLocked(t *testing.T, path string) bool {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	locked, err := tryLock(file)
	if err != nil {
		t.Fatal(err)
	}
	return !locked
}

// has reports whether a process has a pod's network namespace open.
func (p *process) has(pod *dataplanetest.Pod) bool {
	p.t.Helper()
	namespace, err := os.Stat(pod.Path())
	if err != nil {
		p.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "fd", "*"))
	if err != nil {
		p.t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(path string) bool {
		file, err := os.Stat(path)
		return err == nil && os.SameFile(file, namespace)
	})
}

// TestTwoProcesses is a rolling update: the newer process serves, the older one has nothing open by
// which it could write, and the pod's connections go through the proxy at any time.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	program, dir := build(t), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	s := &source{changes: make(chan ambient.Change, 10), statuses: make(chan ambient.Status, 100)}
	s.changes <- ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}}, Pods: []ambient.Pod{webPod()}, Complete: true}
	serveFeed(t, path("feed"), s)
	args := []string{
		"-feed=" + path("feed"), "-events=" + path("events"), "-proxy=" + path("proxy"), "-journal=" + path("records"), `-settings={"noHost":true}`,
	}
	older := begin(t, program, args...)
	awaitSocket(t, path("events"))
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{Socket: path("proxy"), Numbers: ambient.IstioNumbers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() }) // what it says of the agent's end is nothing
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{})
	if _, err := enrol(t, path("events"), pod, time.Minute); err != nil {
		t.Fatal(err)
	}
	if !isLocked(t, path("records.lock")) || !older.has(pod) {
		t.Fatal("the process has no lock, or not the pod's namespace")
	}
	relayed(t, pod, proxy, 1)

	newer := begin(t, program, args...)
	older.await("stands by")
	relayed(t, pod, proxy, 1)
	if _, err := enrolWhenServed(t, path("events"), pod); err != nil { // by the newer one
		t.Fatal(err)
	}
	relayed(t, pod, proxy, 1)
	if !isLocked(t, path("records.lock")) || !newer.has(pod) || older.has(pod) {
		t.Errorf("the newer process has the namespace open: %t, the older one: %t", newer.has(pod), older.has(pod))
	}
	err = event.HandOver(t.Context(), path("events"), time.Nanosecond)
	if own, is := errors.AsType[*event.Error](err); !is || own.Code != event.CodeRefused {
		t.Errorf("a process that is older gets %v", err)
	}
	if err := newer.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = newer.cmd.Wait() // it was killed
	relayed(t, pod, proxy, 1)

	older.await("serves again")
	if _, err := enrolWhenServed(t, path("events"), pod); err != nil {
		t.Fatal(err)
	}
	relayed(t, pod, proxy, 1)
	if !isLocked(t, path("records.lock")) || !older.has(pod) {
		t.Error("without the newer process, the older one does not serve")
	}
	again := begin(t, program, args...)
	older.await("stands by")
	if _, err := enrolWhenServed(t, path("events"), pod); err != nil {
		t.Fatal(err)
	}
	relayed(t, pod, proxy, 1)
	if !again.has(pod) || older.has(pod) {
		t.Errorf("the process that was started last has the namespace open: %t, the first one: %t", again.has(pod), older.has(pod))
	}
	older.end() // while it stands by
	again.end()
}

// enrolWhenServed does what the plugin does as soon as a process serves the socket.
func enrolWhenServed(t *testing.T, events string, pod *dataplanetest.Pod) (interception.Decision, error) {
	t.Helper()
	for start := time.Now(); ; {
		decision, err := enrol(t, events, pod, time.Minute)
		if err == nil || !errors.Is(err, unix.ECONNREFUSED) || time.Since(start) > time.Minute {
			return decision, err
		}
	}
}

// TestTurn has a process that does not hand over, and one that is newer.
func TestTurn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := options{journal: filepath.Join(dir, "records"), events: filepath.Join(dir, "events")}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	started, err := sinceBoot()
	if err != nil {
		t.Fatal(err)
	}
	first, err := awaitTurn(t.Context(), o, started, time.Minute, log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := awaitTurn(t.Context(), o, started+1, time.Millisecond, log); err == nil || !strings.Contains(err.Error(), "records.lock") {
		t.Errorf("beside a process that does not answer: %v", err)
	}
	ended := make(chan error, 1)
	server, err := event.Listen(t.Context(), o.events, event.Options{Enroller: enroller{}, HandOver: func(started time.Duration) error {
		return first.handOver(func(err error) { ended <- err })(started)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	if _, err := awaitTurn(t.Context(), o, started, time.Minute, log); !errors.Is(err, errSuperseded) || len(ended) > 0 {
		t.Errorf("beside a process that is not older: %v", err)
	}
	cancel()
	if err := errors.Join(<-done, first.handOver(func(err error) { ended <- err })(first.started+1)); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, errSuperseded) {
		t.Errorf("the work ends with %v", err)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if err := awaitFree(over, o); !errors.Is(err, context.Canceled) {
		t.Errorf("while a process has the turn: %v", err)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the turn is left to others
		if err := awaitFree(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	second, err := awaitTurn(t.Context(), o, started, time.Minute, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.close(); err != nil {
		t.Error(err)
	}
}
