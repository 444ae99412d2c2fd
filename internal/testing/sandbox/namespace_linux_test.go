// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func TestNamespaceIsNewAndOpenAndMounted(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	var inside string
	if err := n.Do(func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if outside := namespaceOf(t, "self", "net"); inside == outside {
		t.Errorf("Do runs in %s, the namespace it came from", outside)
	}
	mounted, err := netns.GetFromPath(n.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer mounted.Close()
	if handle := netns.NsHandle(n.File().Fd()); !handle.Equal(mounted) {
		t.Errorf("the file is %s, at the path is %s", handle, mounted)
	}
}

// TestNamespaceOfUsersBelongsToThem asks the kernel which user namespace owns the network
// namespace.
func TestNamespaceOfUsersBelongsToThem(t *testing.T) {
	t.Parallel()
	n, err := NewNamespaceOfUsers(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	fd, err := unix.IoctlRetInt(int(n.File().Fd()), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	owner := os.NewFile(uintptr(fd), "owner")
	defer owner.Close()
	theirs, err := owner.Stat()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.Stat("/proc/self/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	if os.SameFile(ours, theirs) {
		t.Error("it belongs to the test's own user namespace")
	}
}

func TestMainThreadKeepsItsNamespace(t *testing.T) {
	t.Parallel()
	onMain, hold := make(chan bool), make(chan struct{})
	const many = 32
	for range many {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			onMain <- unix.Gettid() == os.Getpid()
			<-hold
		}()
	}
	for range many {
		if <-onMain {
			t.Error("a goroutine runs on the main thread, whose namespace /proc/self/ns/net shows")
		}
	}
	close(hold)
}

func TestNamespaceTakesNoPathThatExists(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewNamespace(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("NewNamespace = %v, want %v", err, fs.ErrExist)
	}
	if text, err := os.ReadFile(path); string(text) != "mine" {
		t.Errorf("the file now holds %q, %v", text, err)
	}
}

func TestConnectedNamespacesTalkAtOnce(t *testing.T) {
	t.Parallel()
	left, right := newNamespace(t), newNamespace(t)
	if err := Connect(t.Context(), End{left, "eth0"}, End{right, "veth1"}); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{{"192.0.2.1/24", "192.0.2.2/24"}, {"2001:db8::1/64", "2001:db8::2/64"}} {
		if err := errors.Join(left.AddAddress(t.Context(), "eth0", netip.MustParsePrefix(pair[0])), right.AddAddress(t.Context(), "veth1", netip.MustParsePrefix(pair[1]))); err != nil {
			t.Fatal(err)
		}
		address := netip.MustParsePrefix(pair[1]).Addr()
		var listener net.Listener
		if err := right.Do(func() (err error) {
			listener, err = net.Listen("tcp", netip.AddrPortFrom(address, 80).String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		if err := left.Do(func() error {
			connection, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				return err
			}
			return connection.Close()
		}); err != nil {
			t.Error(err)
		}
	}
}

func newNamespace(t *testing.T) *Namespace {
	t.Helper()
	n, err := NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}
