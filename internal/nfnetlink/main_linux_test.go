// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

func newNamespace(t *testing.T) *sandbox.Namespace {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.Close() })
	return namespace
}

func newSocket(t *testing.T) *Socket {
	t.Helper()
	return openSocket(t, newNamespace(t).File())
}

func openSocket(t *testing.T, namespace *os.File) *Socket {
	t.Helper()
	socket, err := Open(namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

func descriptor(s *Socket) int {
	if c, ok := s.client.Conn.(interface{ FD() int }); ok {
		return c.FD()
	}
	return -1
}

// addTables returns a batch that adds tables of family inet. The flags are those of each message.
func addTables(flags uint16, names ...string) *Batch {
	b := NewBatch(unix.NFNL_SUBSYS_NFTABLES)
	for _, name := range names {
		b.Message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|flags, unix.NFPROTO_INET)
		b.Text(unix.NFTA_TABLE_NAME, name)
	}
	return b
}

// exists reports whether the socket's namespace has a table: adding it exclusively fails then.
func exists(t *testing.T, s *Socket, name string) bool {
	t.Helper()
	err := s.Commit(addTables(unix.NLM_F_EXCL, name))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		t.Fatal(err)
	}
	return err != nil
}

// inUserNamespace runs the calling test again in a process with a user namespace of its own, which
// has all privileges in that namespace and no others. If outside is not nil, descriptor 3 is the
// namespace that it makes. In that process inUserNamespace returns true.
func inUserNamespace(t *testing.T, flags uintptr, outside func(*testing.T) *sandbox.Namespace) bool {
	t.Helper()
	if strings.HasSuffix(os.Args[0], insideSuffix) {
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Args[0] += insideSuffix
	if outside != nil {
		cmd.ExtraFiles = []*os.File{outside(t).File()}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | flags,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a user namespace: %v\n%s", err, out)
	}
	return false
}

// insideSuffix marks the program name of the process that inUserNamespace starts.
const insideSuffix = "-in-user-namespace"

func sysctl(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return number
}
