// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// marking is daemons of one node, one after the other, and their clock.
type marking struct {
	t      *testing.T
	binDir string
	now    time.Time
}

// begin starts a daemon. It ends as the kernel ends one that is killed.
func (m *marking) begin() (c *claims, end func()) {
	m.t.Helper()
	daemon, _ := newTestInstaller(m.t, m.binDir)
	held, err := daemon.holdAsDaemon(m.t.Context(), func() {})
	if err != nil {
		m.t.Fatal(err)
	}
	c = daemon.claims
	c.options.Now = func() time.Time { return m.now }
	c.attend(held)
	if err := c.keep(nil); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(held.release)
	return c, held.release
}

// wantSuperseded expects a daemon to stand back, and to look again in time.
func (m *marking) wantSuperseded(what string, c *claims) {
	m.t.Helper()
	var later interface{ Again() time.Time }
	if err := c.keep(nil); !errors.Is(err, ErrSuperseded) || !errors.As(err, &later) || !later.Again().Equal(m.now.Add(lookInterval)) {
		m.t.Errorf("%s: %v, want that it looks again in %s", what, err, lookInterval)
	}
}

// TestKilledDaemonIsFollowed has the newer of two daemons killed. The older one is in charge again
// once the next process of the newer one has had time to begin, and stands back when one begins.
func TestKilledDaemonIsFollowed(t *testing.T) {
	t.Parallel()
	m := &marking{t: t, binDir: t.TempDir(), now: time.Unix(1_000_000_000, 0)}
	older, _ := m.begin()
	_, kill := m.begin()
	for range 5 {
		m.wantSuperseded("beside a newer daemon", older)
		m.now = m.now.Add(time.Hour)
	}
	kill()
	m.wantSuperseded("when the newer one was killed", older)
	m.now = m.now.Add(restartWithin - 1)
	m.wantSuperseded("just before its time is over", older)
	_, kill = m.begin()
	m.now = m.now.Add(1)
	m.wantSuperseded("beside its next process", older)
	kill()
	m.wantSuperseded("when that was killed", older)
	_, kill = m.begin()
	kill()
	m.now = m.now.Add(restartWithin)
	m.wantSuperseded("when another has been killed since", older)
	if err := os.Remove(older.path()); err != nil {
		t.Fatal(err)
	}
	m.wantSuperseded("without the claim", older)
	m.now = m.now.Add(restartWithin)
	if err := older.keep(nil); err != nil {
		t.Errorf("when its time is over: %v", err)
	}
	_, kill = m.begin()
	m.wantSuperseded("beside one that begins later", older)
	kill()
	m.wantSuperseded("when that was killed", older)
	if err := os.Rename(filepath.Join(m.binDir, "linkmesh-cni.lock"), filepath.Join(m.binDir, "moved")); err != nil {
		t.Fatal(err)
	}
	m.now = m.now.Add(time.Hour)
	m.wantSuperseded("without the file of the marks", older)
}

// TestOneNumberForTwo has a daemon that begins and an older one choose the same number: the one
// that begins takes the next, as the newest.
func TestOneNumberForTwo(t *testing.T) {
	t.Parallel()
	m := &marking{t: t, binDir: t.TempDir(), now: time.Unix(1_000_000_000, 0)}
	older, _ := m.begin()
	_, kill := m.begin()
	m.wantSuperseded("beside a newer daemon", older)
	kill()
	m.wantSuperseded("when the newer one was killed", older)
	m.now = m.now.Add(restartWithin)
	daemon, _ := newTestInstaller(t, m.binDir)
	held, err := daemon.holdAsDaemon(t.Context(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.release)
	newest, calls := daemon.claims, 0
	newest.attend(held)
	if err := newest.update(nil, func(*claim) {
		if calls++; calls == 1 {
			if err := older.keep(nil); err != nil {
				t.Errorf("the older one, before: %v", err)
			}
		}
	}); err != nil || calls != 2 {
		t.Errorf("the newest: %v, after %d calls", err, calls)
	}
	m.wantSuperseded("beside the newest", older)
}
