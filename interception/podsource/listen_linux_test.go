// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func TestListenAgentMakesAPrivateSocket(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	listener, err := agentserver.Listen(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(filepath.Join(dir, podsource.AgentSocket))
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if names := list(t, dir); names != "agent.sock" {
		t.Errorf("the directory has %s", names)
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

func TestListenAgentRelievesAnother(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	before, after := &daemon{pod: webPod()}, &daemon{pod: webPod()}
	serve(t, dir, before.server())
	serve(t, dir, after.server())
	if _, err := agentFor(dir).Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
	if len(before.asked) != 0 || len(after.asked) != 1 {
		t.Errorf("asked %d and %d times", len(before.asked), len(after.asked))
	}
}

func TestListenAgentRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(dir string) (use string, err error)
		want    string
	}{
		"not a directory": {
			func(dir string) (string, error) { return filepath.Join(dir, "none"), nil }, "no such file or directory",
		},
		"a file for the directory": {
			func(dir string) (string, error) {
				path := filepath.Join(dir, "file")
				return path, os.WriteFile(path, nil, 0o600)
			},
			"is not a directory",
		},
		"a directory for everybody": {
			func(dir string) (string, error) { return dir, os.Chmod(dir, 0o777|fs.ModeSticky) }, "other users may write to it: forbid that (chmod go-w)",
		},
		"a symbolic link": {
			func(dir string) (string, error) {
				return dir, os.Symlink("elsewhere", filepath.Join(dir, podsource.AgentSocket))
			},
			"there is something other than a socket (Lrwxrwxrwx): remove it",
		},
		"a file": {
			func(dir string) (string, error) {
				return dir, os.WriteFile(filepath.Join(dir, podsource.AgentSocket), []byte("precious"), 0o600)
			},
			"there is something other than a socket (-rw-------): remove it",
		},
		"a long path": {
			func(dir string) (string, error) {
				path := filepath.Join(dir, strings.Repeat("x", 100))
				return path, os.Mkdir(path, 0o700)
			},
			"bytes, and may have 107: use a shorter directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := test.prepare(runDir(t))
			if err != nil {
				t.Fatal(err)
			}
			before := ""
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				before = list(t, dir)
			}
			listener, err := agentserver.Listen(t.Context(), dir)
			if err == nil {
				_ = listener.Close()
				t.Fatal("it listens")
			}
			if want := "listen on " + filepath.Join(dir, podsource.AgentSocket) + ": "; !strings.HasPrefix(err.Error(), want) ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
			if before != "" && list(t, dir) != before {
				t.Errorf("the directory has %s", list(t, dir))
			}
		})
	}
}

func TestPeersOfOtherUsersAreRefused(t *testing.T) {
	t.Parallel()
	t.Run("a client", func(t *testing.T) {
		t.Parallel()
		dir := runDir(t)
		d := &daemon{pod: webPod()}
		serve(t, dir, d.server())
		// The directory and the socket keep other users out; with both open, the server still refuses
		// them.
		for _, path := range []string{dir, filepath.Join(dir, podsource.AgentSocket)} {
			if err := os.Chmod(path, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		var connection net.Conn
		var err error
		if !sandboxtest.AsAnotherUser(t, func() { connection, err = net.Dial("unix", filepath.Join(dir, podsource.AgentSocket)) }) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		if _, err := connection.Write([]byte("GET /v1/pods/shop/web-0 HTTP/1.0\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 4<<10)
		n, err := connection.Read(answer)
		const want = `{"error":{"reason":"Forbidden","message":"the process at the other end is of user 1234, and not of root or user 0"}}`
		if text := string(answer[:n]); err != nil || !strings.HasPrefix(text, "HTTP/1.0 403 ") || !strings.Contains(text, want) {
			t.Errorf("got %v, %s", err, text)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if peer := (*podsource.PeerError)(nil); len(d.asked) != 0 || len(d.errors) != 1 || !errors.As(d.errors[0], &peer) || peer.UID != 1234 {
			t.Errorf("asked %d times, errors %v", len(d.asked), d.errors)
		}
	})
	t.Run("an agent", func(t *testing.T) {
		t.Parallel()
		dir := runDir(t)
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		var listener net.Listener
		var err error
		if !sandboxtest.AsAnotherUser(t, func() { listener, err = net.Listen("unix", filepath.Join(dir, podsource.AgentSocket)) }) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		_, err = agentFor(dir).Pod(t.Context(), web)
		wantFailure(t, err, podsource.ErrUntrusted, "is of user 1234, and not of root or user 0; check which user's program listens there")
	})
}
