// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

func newClient(t testing.TB, in kernel.Namespace) *kernel.Client {
	t.Helper()
	conn, err := in.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return kernel.NewClient(conn)
}

func links() kernel.Request {
	return kernel.Request{Kind: unix.RTM_GETLINK, Flags: unix.NLM_F_DUMP, Body: make([]byte, unix.SizeofIfInfomsg)}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	c := newClient(t, newNamespace(t))
	if list, err := c.Ask(links()); err != nil || len(list) == 0 || !bytes.Contains(list[0], []byte("lo\x00")) {
		t.Errorf("got %q and %v, want the link lo", list, err)
	}
	var refused *kernel.RefusedError
	up := kernel.Request{Kind: unix.RTM_NEWLINK, Body: make([]byte, unix.SizeofIfInfomsg)} // of no link
	if _, err := c.Ask(up); !errors.As(err, &refused) || !errors.Is(err, refused.Errno) || refused.Errno == 0 {
		t.Errorf("got %v, want a refusal", err)
	}
	route := kernel.Request{Kind: unix.RTM_NEWROUTE, Body: make([]byte, unix.SizeofRtMsg)}
	route.Body[0], route.Body[1] = unix.AF_INET, 33
	if _, err := c.Ask(route); !errors.As(err, &refused) || refused.Text == "" || !strings.Contains(err.Error(), refused.Text) {
		t.Errorf("got %v, want a refusal with the kernel's own words", err)
	}
}

// TestLateAnswer has an answer come late: the next request does not take it for its own.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	var late [][]byte
	c := newClient(t, kerneltest.Answering(func(datagram []byte) [][]byte {
		answer := append(late, kerneltest.Messages(datagram, unix.RTM_NEWLINK, datagram[8:12])...)
		if late == nil {
			late, answer = answer, nil
		}
		return answer
	}))
	if _, err := c.Ask(links()); !errors.Is(err, kernel.ErrNoAnswer) {
		t.Errorf("silence: got %v, want ErrNoAnswer", err)
	}
	if list, err := c.Ask(links()); err != nil || len(list) != 1 || bytes.Equal(list[0], late[0][16:20]) {
		t.Errorf("got %v and %v, want the second answer alone", list, err)
	}
}

// TestLostAnswer has answers get lost, which is an error, and the next request is answered.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	in := newNamespace(t)
	up := kernel.Request{Kind: unix.RTM_NEWLINK, Body: append([]byte{4: 1}, make([]byte, unix.SizeofIfInfomsg-5)...)}
	for _, request := range []kernel.Request{links(), up} {
		c := newClient(t, (&kerneltest.Fault{Kind: kerneltest.Lost, At: 1}).In(in))
		if list, err := c.Ask(request); !errors.Is(err, kernel.ErrNoAnswer) || !errors.Is(err, unix.ENOBUFS) {
			t.Errorf("got %v and %v, want ErrNoAnswer and ENOBUFS", list, err)
		}
		if list, err := c.Ask(links()); err != nil || len(list) == 0 {
			t.Errorf("the next: got %v and %v", list, err)
		}
	}
}

// TestUnreadable covers answers that no kernel gives.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(datagram []byte) []byte{
		"no message":            func([]byte) []byte { return []byte{1, 2, 3} },
		"longer than it is":     func([]byte) []byte { return binary.NativeEndian.AppendUint32(nil, 1000) },
		"a verdict of no bytes": func(d []byte) []byte { return kerneltest.Messages(d, unix.NLMSG_ERROR, nil)[0][:16] },
		"larger than a read":    func([]byte) []byte { return make([]byte, 1<<16) },
	} {
		c := newClient(t, kerneltest.Answering(func(datagram []byte) [][]byte { return [][]byte{answer(datagram)} }))
		if list, err := c.Ask(links()); !errors.Is(err, kernel.ErrNoAnswer) {
			t.Errorf("%s: got %v and %v, want ErrNoAnswer", name, list, err)
		}
	}
}

// TestInterruptedList has a list change all the time.
func TestInterruptedList(t *testing.T) {
	t.Parallel()
	asked := 0
	c := newClient(t, kerneltest.Answering(func(datagram []byte) [][]byte {
		answer := kerneltest.Messages(datagram, unix.RTM_NEWLINK)
		if asked++; asked != 3 {
			answer[0][6] |= unix.NLM_F_DUMP_INTR
		}
		return answer
	}))
	if _, err := c.Ask(links()); err != nil || asked != 3 {
		t.Errorf("got %v after %d times, want the third list", err, asked)
	}
	if _, err := c.Ask(links()); err == nil || errors.Is(err, kernel.ErrNoAnswer) {
		t.Errorf("got %v, want an error that says that others make changes", err)
	}
}

// FuzzAsk has answers of any form, with and without the right sequence number.
func FuzzAsk(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{}, true)
	f.Add([]byte{36, 0, 0, 0, 2, 0, 0, 3, 1, 0, 0, 128, 0, 0, 0, 0, 234, 255, 255, 255}, []byte{8, 0, 1, 0, 'w', 'h', 'y', 0}, true)
	f.Add([]byte{1, 2, 3}, []byte{36, 0, 0, 0}, false)
	f.Fuzz(func(t *testing.T, one, two []byte, numbered bool) {
		c := newClient(t, kerneltest.Answering(func(datagram []byte) [][]byte {
			if numbered && len(one) >= 12 {
				one = append(append(bytes.Clone(one[:8]), datagram[8:12]...), one[12:]...)
			}
			return [][]byte{one, two}
		}))
		list, err := c.Ask(links())
		size := 0
		for _, message := range list {
			size += unix.SizeofNlMsghdr + len(message)
		}
		if size > len(one)+len(two) || err != nil && list != nil {
			t.Errorf("%d bytes in %d messages and %v from %d", size, len(list), err, len(one)+len(two))
		}
	})
}
