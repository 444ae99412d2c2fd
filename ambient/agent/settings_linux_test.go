// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception/journal"
)

// recorded returns the record of a pod.
func (n *node) recorded(uid string) journal.Record {
	n.t.Helper()
	record, err := n.options.Journal.Read(attachment(uid))
	if err != nil {
		n.t.Fatal(err)
	}
	return record
}

// TestSparing enrols a running pod, a new one, and a running one whose connections are captured.
func TestSparing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ capture, event, want bool }{
		"running": {want: true}, "new": {event: true}, "running, capture": {capture: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.options.CaptureExisting = test.capture
			pod := n.pod("a")
			a, _ := n.run()
			n.proxy(nil)
			object := object("a")
			if test.event {
				delete(n.paths, "a")
			}
			n.feed <- told(object)
			if test.event {
				if _, err := n.hand(t.Context(), a, "a", pod); err != nil {
					t.Fatal(err)
				}
			}
			n.awaitStatus(a, "a", ambient.StatusEnabled)
			if got := n.recorded("a").Plan.IsSparing(); got != test.want {
				t.Errorf("the plan is sparing: %t, want %t", got, test.want)
			}
		})
	}
}

// TestClosed captures a pod that no proxy serves.
func TestClosed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.Closed = true
	pod := n.pod("a")
	a, _ := n.run()
	n.feed <- told(object("a"))
	n.await(func() bool { return n.captured(pod) }, func() string { return describe(a) })
	n.awaitStatus(a, "a", ambient.StatusPending)
	n.connect(pod, n.awaitProxy(a), 1)
}

// awaitProxy starts a proxy and waits until it serves pod a.
func (n *node) awaitProxy(a *Agent) *ambienttest.Proxy {
	n.t.Helper()
	started := n.proxy(nil)
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	return started
}

// TestListenersAreObserved has a proxy that acknowledges each request and opens no listeners.
func TestListenersAreObserved(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	a, _ := n.run()
	idle, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: n.options.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	ack, err := zds.Ack{}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := idle.Write(zds.Hello{Version: zds.Version1}.Marshal())
		for ; err == nil; _, err = idle.Write(ack) {
			if read, _ := idle.Read(make([]byte, zds.MaxMessage)); read == 0 {
				return
			}
		}
	}()
	n.feed <- told(object("a"))
	n.awaitPods(a, "that it waits for the listeners", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepAwaitProxy && pods[0].Seen.Proxy == ambient.ProxyTold
	})
	if n.captured(pod) {
		t.Error("the pod is captured, and has no listeners")
	}
	if err := idle.Close(); err != nil {
		t.Error(err)
	}
	n.connect(pod, n.awaitProxy(a), 1)
}

// TestFullDisk captures no pod whose record cannot be written.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.Journal.Directory = filepath.Join(n.options.Journal.Directory, "without", "parents")
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy(nil)
	n.feed <- told(object("a"))
	n.awaitPods(a, "that the record cannot be written", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepEnter && errors.Is(pods[0].Err, os.ErrNotExist)
	})
	if n.captured(pod) || len(n.members()) > 0 {
		t.Errorf("captured %t, members %v, want nothing in the kernel without a record", n.captured(pod), n.members())
	}
}

// TestInvalidUID has a UID that no file can be named after. Another pod is served.
func TestInvalidUID(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("../a")
	pod := n.pod("b")
	a, _ := n.run()
	proxy := n.proxy(nil)
	n.feed <- told(object("../a"), object("b"))
	n.awaitStatus(a, "b", ambient.StatusEnabled)
	n.connect(pod, proxy, 1)
	n.awaitPods(a, "that ../a has no record", func(pods []Pod) bool {
		return slices.ContainsFunc(pods, func(p Pod) bool { return p.UID == "../a" && errors.Is(p.Err, journal.ErrAttachment) })
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	plan := enrolledRecord(t).Plan
	for want, change := range map[string]func(*Options){
		"options without Feed":       func(o *Options) { o.Feed = nil },
		"options without Sets":       func(o *Options) { o.Sets = nil },
		ambient.ErrNumbers.Error():   func(o *Options) { o.Numbers.ProxyMark.Value = 0 },
		"z: no such file":            func(o *Options) { o.Socket += "/z" },
		"directory of its own":       func(o *Options) { write(t, *o, journal.Record{Attachment: pluginAttachment(), Plan: plan}) },
		`pod "b" and owner "test-am`: func(o *Options) { write(t, *o, journal.Record{Attachment: attachment("a"), UID: "b", Plan: plan}) },
	} {
		n := newNode(t)
		change(&n.options)
		if _, err := New(t.Context(), n.options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

func pluginAttachment() journal.Attachment {
	return journal.Attachment{Network: "bridge", ContainerID: "c", Interface: "eth0"}
}

func write(t *testing.T, o Options, record journal.Record) {
	t.Helper()
	record.Time = time.Now()
	if err := o.Journal.Write(record); err != nil {
		t.Fatal(err)
	}
}

// enrolledRecord returns the record that an agent has written.
func enrolledRecord(t *testing.T) journal.Record {
	t.Helper()
	n := newNode(t)
	n.pod("a")
	a, end := n.run()
	n.proxy(nil)
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	end()
	return n.recorded("a")
}
