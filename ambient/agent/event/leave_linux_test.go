// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

// leaver answers as the test says, and keeps what it was given.
type leaver struct {
	held   bool
	err    error
	waits  bool // until the context ends
	called chan call
}

func (l *leaver) Leave(ctx context.Context, pod event.Pod, namespace *os.File) (held bool, err error) {
	var stat unix.Stat_t
	if namespace != nil {
		if err := unix.Fstat(int(namespace.Fd()), &stat); err != nil {
			return false, err
		}
	}
	deadline, _ := ctx.Deadline()
	l.called <- call{pod, stat.Ino, time.Until(deadline)}
	if l.waits {
		<-ctx.Done()
		return false, errors.New("the kernel takes its time")
	}
	return l.held, l.err
}

func (l *leaver) serve(t *testing.T) (socket string, outcomes <-chan event.Outcome) {
	t.Helper()
	l.called = make(chan call, 100)
	return serveWith(t, event.Options{Enroller: &enroller{}, Leaver: l, Timeout: time.Hour})
}

func TestLeave(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"held": true, "not held": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &leaver{held: held}
			socket, outcomes := l.serve(t)
			file, inode := anyFile(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for namespace, want := range map[*os.File]uint64{file: inode, nil: 0} {
				got, err := event.Leave(ctx, socket, web(), namespace)
				if err != nil || got != held {
					t.Errorf("Leave = %t, %v, want %t", got, err, held)
				}
				if c := <-l.called; !reflect.DeepEqual(c.pod, web()) || c.inode != want || c.deadline < 30*time.Second || c.deadline > 54*time.Second {
					t.Errorf("the agent was told of %+v, want %+v with inode %d, within nine tenths of a minute", c, web(), want)
				}
				if o := <-outcomes; o.Path != "/v1/leave" || o.Status != 200 || o.Err != nil || o.Pod.Name != "web-0" || o.Duration <= 0 {
					t.Errorf("the outcome is %+v", o)
				}
			}
			if _, err := file.Stat(); err != nil {
				t.Errorf("the caller's file: %v", err)
			}
		})
	}
}

func TestLeaveFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		leaver  leaver
		code    event.Code
		message string
	}{
		"with a code": {leaver{err: &event.Error{Code: event.CodeStopped, Message: "it ends"}}, event.CodeStopped, "it ends"},
		"without one": {leaver{err: errors.New("the kernel refuses")}, event.CodeUnfinished, "the kernel refuses"},
		"in time":     {leaver{waits: true}, event.CodeUnfinished, "the kernel takes its time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket, outcomes := test.leaver.serve(t)
			ctx, cancel := context.WithTimeout(t.Context(), map[bool]time.Duration{true: 2 * time.Second, false: time.Minute}[test.leaver.waits])
			defer cancel()
			held, err := event.Leave(ctx, socket, web(), nil)
			own, is := errors.AsType[*event.Error](err)
			if held || !is || own.Code != test.code || !strings.Contains(own.Message, test.message) || !strings.Contains(err.Error(), "shop/web-0") {
				t.Errorf("Leave = %t, %v, want code %s and %q", held, err, test.code, test.message)
			}
			if o := <-outcomes; o.Status != 500 || o.Err == nil {
				t.Errorf("the outcome is %+v", o)
			}
		})
	}
	older, _ := serve(t, &enroller{})
	_, err := event.Leave(t.Context(), older, web(), nil)
	if own, is := errors.AsType[*event.Error](err); !is || own.Code != event.CodeProtocol || !strings.Contains(own.Message, "another version") {
		t.Errorf("of an older agent: %v", err)
	}
}

func TestBadDepartures(t *testing.T) {
	t.Parallel()
	l := &leaver{}
	socket, _ := l.serve(t)
	file, _ := anyFile(t)
	fd := int(file.Fd())
	for name, test := range map[string]struct {
		body        string
		descriptors []int
		want        string
	}{
		"no sandbox":      {`{"namespace":"shop","name":"web-0"}`, nil, "names no sandbox"},
		"no pod":          {`{"namespace":"shop","container":"3e1c"}`, []int{fd}, "does not name a pod"},
		"no JSON":         {"funkyjunk", []int{fd}, "invalid character"},
		"an empty body":   {"", []int{fd}, "unexpected end"},
		"two descriptors": {`{"namespace":"shop","name":"web-0"}`, []int{fd, fd}, ""},
	} {
		status, got := exchange(t, socket, post("/v1/leave", test.body), test.descriptors...)
		if status != 400 || !strings.Contains(got, test.want) {
			t.Errorf("%s: %d %q, want 400 with %q", name, status, got, test.want)
		}
	}
	if len(l.called) > 0 {
		t.Errorf("the agent was told of %v", <-l.called)
	}
}

// TestStaticPodIsSelected by the UID of its mirror, and by the one that the runtime knows.
func TestStaticPodIsSelected(t *testing.T) {
	t.Parallel()
	static := event.PodState{UID: "of-the-mirror", RuntimeUID: "0a0a", Namespace: "shop", Name: "web-0"}
	ordinary := event.PodState{UID: "7f0b", Namespace: "shop", Name: "web-1"}
	for of, want := range map[event.Selection][2]bool{
		{UID: "of-the-mirror"}: {true, false}, {UID: "0a0a"}: {true, false}, {UID: "7f0b"}: {false, true}, {}: {true, true},
		{Namespace: "shop", Name: "web-0"}: {true, false}, {UID: "0a0a", Namespace: "shop", Name: "web-1"}: {false, false},
	} {
		if got := [2]bool{of.Matches(static), of.Matches(ordinary)}; got != want {
			t.Errorf("%+v matches %v, want %v", of, got, want)
		}
	}
}
