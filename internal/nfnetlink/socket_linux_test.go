// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCommit(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	if err := s.Commit(addTables(0, "one", "two")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		if !exists(t, s, name) {
			t.Errorf("table %s is not there", name)
		}
	}
}

// TestCommitRefused has a message in the middle fail: the kernel acknowledges the last one as well.
func TestCommitRefused(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	if err := s.Commit(addTables(0, "taken")); err != nil {
		t.Fatal(err)
	}
	batch := addTables(unix.NLM_F_EXCL, "before", "taken", "after", "taken", "last")
	datagram, err := batch.finish()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Send(descriptor(s), datagram, 0); err != nil {
		t.Fatal(err)
	}
	answers, err := s.answers()
	if err != nil {
		t.Fatal(err)
	}
	want := []answer{
		refusedBy(firstSequence+1, unix.EEXIST, ""),
		refusedBy(firstSequence+3, unix.EEXIST, ""),
		{sequence: firstSequence + 4},
	}
	for _, a := range answers {
		if a.refused != nil {
			a.refused.Text = "" // whether the kernel explains this differs
		}
	}
	if !reflect.DeepEqual(answers, want) {
		t.Errorf("answers: got %v, want %v", answers, want)
	}
	var refusal *RefusedError
	if err := outcome(batch.count, answers); !errors.As(err, &refusal) || refusal.Message != 1 {
		t.Errorf("outcome: got %v, want a refusal of message 1", err)
	}
	if exists(t, s, "before") || exists(t, s, "last") {
		t.Error("a part of the batch was committed")
	}
}

// TestCommitExplained checks that the error has the kernel's own words.
func TestCommitExplained(t *testing.T) {
	t.Parallel()
	b := addTables(0, "one", strings.Repeat("x", 300))
	var refusal *RefusedError
	if err := newSocket(t).Commit(b); !errors.As(err, &refusal) {
		t.Fatalf("got %v, want a refusal", err)
	}
	if refusal.Message != 1 || refusal.Errno == 0 || refusal.Text == "" {
		t.Errorf("got %#v, want message 1 with an explanation", refusal)
	}
	if got := refusal.Error(); !strings.Contains(got, refusal.Text) || !strings.Contains(got, refusal.Errno.Error()) {
		t.Errorf("Error() = %q lacks errno or explanation", got)
	}
}

// TestCommitUnsendable has batches that must fail before they reach the kernel.
func TestCommitUnsendable(t *testing.T) {
	t.Parallel()
	long := addTables(0, "one")
	long.Message(unix.NFT_MSG_NEWSETELEM, 0, unix.NFPROTO_INET)
	long.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
		for range 3 {
			long.Bytes(unix.NFTA_LIST_ELEM, make([]byte, 30_000))
		}
	})
	for name, batch := range map[string]*Batch{"empty": NewBatch(unix.NFNL_SUBSYS_NFTABLES), "attribute too long": long} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSocket(t)
			err := s.Commit(batch)
			var errno syscall.Errno
			if err == nil || errors.As(err, &errno) {
				t.Errorf("got %v, want an error of our own", err)
			}
			if exists(t, s, "one") {
				t.Error("the batch was sent")
			}
		})
	}
}

// TestAnswersLost floods the receive buffer with errors: Commit reports the first one left.
func TestAnswersLost(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	if err := unix.SetsockoptInt(descriptor(s), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil { // the least the kernel grants
		t.Fatal(err)
	}
	if err := s.Commit(addTables(0, "taken")); err != nil {
		t.Fatal(err)
	}
	b := addTables(unix.NLM_F_EXCL, slices.Repeat([]string{"taken"}, 500)...)
	var refusal *RefusedError
	if err := s.Commit(b); !errors.As(err, &refusal) || refusal.Message != 0 {
		t.Errorf("got %v, want a refusal of message 0", err)
	}
}

// TestNoAnswer checks that neither silence nor a read error counts as success.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	if err := unix.SetsockoptInt(descriptor(s), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	fill(t, s)
	err := s.Commit(addTables(0, "one"))
	if !errors.Is(err, ErrNoAnswer) || !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("got %v, want ErrNoAnswer and ENOBUFS", err)
	}
}

// fill fills the socket's receive buffer with acknowledgements.
func fill(t *testing.T, s *Socket) {
	t.Helper()
	for range 100 {
		datagram, err := addTables(0, "filler").finish()
		if err != nil {
			t.Fatal(err)
		}
		binary.NativeEndian.PutUint32(datagram[20+8:], 12345) // of another sequence
		if err := unix.Send(descriptor(s), datagram, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForgedAnswer has an equally privileged process of the namespace send an error to the socket.
func TestForgedAnswer(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	s, forger := openSocket(t, namespace.File()), openSocket(t, namespace.File())
	if err := s.Commit(addTables(0, "one")); err != nil { // which gives the socket a port
		t.Fatal(err)
	}
	port, err := unix.Getsockname(descriptor(s))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendto(descriptor(forger), errorMessage(firstSequence, unix.ENOMEM), 0, port); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(addTables(0, "two")); err != nil {
		t.Errorf("the forged answer was believed: %v", err)
	}
}

// TestCommitLarge sends a batch that needs the privilege to raise the send buffer beyond its limit.
func TestCommitLarge(t *testing.T) {
	t.Parallel()
	privileged := unix.SetsockoptInt(descriptor(newSocket(t)), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20) == nil
	err := newSocket(t).Commit(large(3 * sysctl(t, "net/core/wmem_max")))
	if privileged && err != nil || !privileged && !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("privileged: %t: got %v", privileged, err)
	}
}

// TestCommitLargeRootless has the privileges of a user namespace only.
func TestCommitLargeRootless(t *testing.T) {
	t.Parallel()
	if !inUserNamespace(t, syscall.CLONE_NEWNET, nil) {
		return
	}
	own, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	s := openSocket(t, own)
	limit := sysctl(t, "net/core/wmem_max")
	if err := s.Commit(large(limit * 3 / 2)); err != nil {
		t.Errorf("within twice net.core.wmem_max: %v", err)
	}
	err = s.Commit(large(limit * 5 / 2))
	if !errors.Is(err, unix.EMSGSIZE) || !strings.Contains(fmt.Sprint(err), "net.core.wmem_max") {
		t.Errorf("beyond: got %v, want EMSGSIZE and what to do about it", err)
	}
	if err := s.Commit(addTables(0, "one")); err != nil {
		t.Errorf("the socket is of no use afterwards: %v", err)
	}
}

func large(size int) *Batch {
	b := addTables(0, "one")
	for b.Size() < size {
		b.Message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, unix.NFPROTO_INET)
		b.Text(unix.NFTA_TABLE_NAME, "one")
		b.Bytes(6, make([]byte, 200)) // NFTA_TABLE_USERDATA
	}
	return b
}

func TestOpenForbidden(t *testing.T) {
	t.Parallel()
	if !inUserNamespace(t, 0, newNamespace) {
		return
	}
	_, err := Open(os.NewFile(3, "foreign"))
	if !errors.Is(err, unix.EPERM) || !strings.Contains(fmt.Sprint(err), "CAP_SYS_ADMIN") {
		t.Errorf("got %v, want EPERM and the capability", err)
	}
}

func TestOpenNoNamespace(t *testing.T) {
	t.Parallel()
	directory, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(directory); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a directory: got %v, want EINVAL", err)
	}
	if err := directory.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(directory); err == nil {
		t.Error("a closed file was taken for a namespace")
	}
}

// TestOpenLeavesThreads checks that no thread stays in a namespace, except for the one that made
// it, which may take a while to end.
func TestOpenLeavesThreads(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	before := threadsIn(t, namespace.File())
	for range 50 {
		if err := openSocket(t, namespace.File()).Commit(addTables(0, "one")); err != nil {
			t.Fatal(err)
		}
	}
	for _, thread := range threadsIn(t, namespace.File()) {
		if !slices.Contains(before, thread) {
			t.Errorf("thread %s is still in the namespace", thread)
		}
	}
}

func threadsIn(t *testing.T, namespace *os.File) []string {
	t.Helper()
	var inside syscall.Stat_t
	if err := syscall.Fstat(int(namespace.Fd()), &inside); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var threads []string
	for _, thread := range all {
		var of syscall.Stat_t
		path := "/proc/self/task/" + thread.Name() + "/ns/net"
		if err := syscall.Stat(path, &of); err == nil && of.Ino == inside.Ino {
			threads = append(threads, thread.Name())
		}
	}
	return threads
}
