// SPDX-License-Identifier: Apache-2.0

package ambientpart

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSilentProcessIsStartedAgain has processes that report that they serve, and do not answer. The
// part says so, and the next process, which answers, makes it ready.
func TestSilentProcessIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, as := range []manner{stopped, deaf, unserved} {
		t.Run(string(as), func(t *testing.T) {
			t.Parallel()
			f := startAs(t, as, Options{AskEvery: 10 * time.Millisecond, Silence: time.Second}, `{"node":{"complete":true,"proxies":1}}`)
			f.await(t, PartName, "it has not answered for 1s: ")
			f.set(`{"node":{"complete":true,"proxies":2}}`)
			f.await(t, ProxyPartName, "")
			f.awaitProxies(t, 2)
			f.await(t, PartName, "")
			for _, c := range f.state.Conditions() {
				if c.Part == PartName && c.Restarts == 0 {
					t.Error("the restart is not counted")
				}
			}
			if text := f.log.String(); !strings.Contains(text, "a part failed; it is started again") || !strings.Contains(text, "has not answered") {
				t.Errorf("the log does not say why:\n%s", text)
			}
		})
	}
}

// awaitProxies waits until a process has reported so many proxies.
func (f *fixture) awaitProxies(t *testing.T, want int) {
	t.Helper()
	if !f.log.Await(patience, func() bool { s := f.State(); return s != nil && s.Node.Proxies == want }) {
		t.Fatalf("no process reports %d proxies:\n%s", want, f.log)
	}
}

// TestProcessThatAnswersStays asks a process again and again.
func TestProcessThatAnswersStays(t *testing.T) {
	t.Parallel()
	f := startAs(t, answering, Options{AskEvery: time.Millisecond, Silence: patience}, `{"node":{"complete":true,"proxies":1}}`)
	for range 20 {
		<-f.requests
	}
	f.await(t, PartName, "")
	if text := f.log.String(); strings.Count(text, "a program was started") != 1 {
		t.Errorf("it was started again:\n%s", text)
	}
}

// TestSilenceOfAnotherProcess: a process that has not begun, or stands by, has no socket, and need
// not answer.
func TestSilenceOfAnotherProcess(t *testing.T) {
	t.Parallel()
	s := silence{socket: filepath.Join(t.TempDir(), "none"), within: time.Nanosecond}
	answers := true
	for _, test := range []struct{ serves, fails bool }{{false, false}, {true, true}, {false, false}} {
		if err := s.ask(t.Context(), func() bool { return test.serves }); (err != nil) != test.fails {
			t.Errorf("while it serves (%t): %v", test.serves, err)
		}
	}
	if err := s.ask(t.Context(), func() bool { answers = !answers; return !answers }); err != nil {
		t.Errorf("of a process that stands by meanwhile: %v", err)
	}
	patient := silence{socket: s.socket, within: time.Hour}
	for range 2 {
		if err := patient.ask(t.Context(), func() bool { return true }); err != nil {
			t.Errorf("before the time is over: %v", err)
		}
	}
}
