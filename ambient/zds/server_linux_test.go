// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func TestSnapshotThenLive(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	a, b := set(t, s, "a"), set(t, s, "b")
	p := dial(t, s)
	p.send(Hello{Version: Version1}.Marshal())
	if id := p.take(KindAdd, "a"); id != a.ID() {
		t.Errorf("pod a has namespace %v, want %v", id, a.ID())
	}
	p.expect(KindAdd, "b")
	c := set(t, s, "c") // while the snapshot is under way
	p.ack("")
	p.take(KindSnapshotSent, "")
	if id := p.take(KindAdd, "c"); id != c.ID() {
		t.Errorf("pod c has namespace %v, want %v", id, c.ID())
	}
	for _, uid := range []string{"a", "b", "c"} {
		if err := s.Await(t.Context(), uid); err != nil {
			t.Error(err)
		}
	}
	s.Delete("b")
	if wrong := await(s, "b"); wrong == nil || !errors.Is(wrong, ErrUnanswered) {
		t.Errorf("before the proxy has forgotten the pod: %v", wrong)
	}
	p.take(KindDel, "b")
	if err := s.Await(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	_ = b // stays open until the pod is forgotten
}

// TestDeleteBeforeTheAnswer deletes a pod that the proxy has been told of and has not acknowledged.
func TestDeleteBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	set(t, s, "a")
	p := dial(t, s)
	p.send(Hello{Version: Version1}.Marshal())
	p.expect(KindAdd, "a")
	s.Delete("a")
	if wrong := await(s, "a"); wrong == nil || !errors.Is(wrong, ErrUnanswered) {
		t.Errorf("a pod that the proxy may know: %v", wrong)
	}
	p.ack("")
	p.take(KindSnapshotSent, "")
	p.take(KindDel, "a")
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestPodAnew(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	old := set(t, s, "a")
	p := connect(t, s, "a")
	anew := set(t, s, "a")
	if id := p.take(KindAdd, "a"); id != anew.ID() || id == old.ID() {
		t.Errorf("pod a has namespace %v, want %v", id, anew.ID())
	}
	if err := s.Set(workload("a"), anew); err != nil {
		t.Fatal(err)
	}
	p.take(KindAdd, "a") // the same again, to ask whether the proxy serves it
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{Again: time.Millisecond})
	set(t, s, "a")
	if wrong := await(s, "a"); wrong == nil || !errors.Is(wrong, ErrNeverConnected) {
		t.Errorf("before any proxy: %v", wrong)
	}
	if err := s.Await(t.Context(), "unknown"); err != nil {
		t.Errorf("a pod that no proxy has been told of: %v", err)
	}
	p := dial(t, s)
	p.send(Hello{Version: Version1}.Marshal())
	p.expect(KindAdd, "a")
	if wrong := await(s, "a"); wrong == nil || !errors.Is(wrong, ErrUnanswered) {
		t.Errorf("before the answer: %v", wrong)
	}
	p.ack("port 15001 is taken")
	p.take(KindSnapshotSent, "")
	settle(t, s, ErrRefused)
	if wrong := await(s, "a"); wrong == nil || wrong.Text != "port 15001 is taken" || !strings.Contains(wrong.Error(), "port 15001 is taken") {
		t.Errorf("after a refusal: %v", wrong)
	}
	p.expect(KindAdd, "a")
	p.ack("still taken")
	p.take(KindAdd, "a")
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	settle(t, s, ErrDisconnected)
	if wrong := await(s, "a"); wrong == nil || wrong.Since.IsZero() || !strings.Contains(wrong.Error(), "since") {
		t.Errorf("after the proxy has gone: %v", wrong)
	}
}

// TestTwoProxies is a rolling update of the proxy, and the new one fails.
func TestTwoProxies(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	set(t, s, "a")
	old := connect(t, s, "a")
	anew := connect(t, s, "a")
	set(t, s, "b")
	anew.take(KindAdd, "b")
	if err := s.Await(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	s.Delete("a")
	old.take(KindDel, "a")
	if wrong := await(s, "a"); wrong == nil {
		t.Error("a pod counts as forgotten before the newer proxy has forgotten it")
	}
	anew.take(KindDel, "a")
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := anew.Close(); err != nil {
		t.Fatal(err)
	}
	old.take(KindAdd, "b")
	if err := s.Await(t.Context(), "b"); err != nil {
		t.Error(err)
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	if err := s.Set(workload("a"), nil); err != nil {
		t.Fatal(err)
	}
	p := dial(t, s)
	p.send(Hello{Version: Version1}.Marshal())
	p.take(KindKeep, "a")
	p.take(KindSnapshotSent, "")
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := s.Set(workload("b"), nil); err != nil {
		t.Fatal(err)
	}
	set(t, s, "a")
	p.take(KindAdd, "a") // and nothing about b: keep is for snapshots
	if wrong := await(s, "b"); wrong == nil || !errors.Is(wrong, ErrUnanswered) {
		t.Errorf("a pod that the proxy cannot be told of: %v", wrong)
	}
}

// TestMisbehaviour ends the connection of a proxy that does not keep the protocol.
func TestMisbehaviour(t *testing.T) {
	t.Parallel()
	const patience = 200 * time.Millisecond
	for name, misbehave := range map[string]func(p *proxy){
		"no hello":                             func(*proxy) {},
		"no message":                           func(p *proxy) { p.send([]byte{8}) },
		"an empty hello":                       func(p *proxy) { p.send(nil) },
		"oversized hello":                      func(p *proxy) { p.send(make([]byte, 2*MaxMessage)) },
		"no ack":                               func(p *proxy) { p.send([]byte{8, 1}); p.expect(KindAdd, "a") },
		"an ack of nothing":                    func(p *proxy) { p.send([]byte{8, 1}); p.expect(KindAdd, "a"); p.send([]byte{8, 1}) },
		"an oversized ack":                     func(p *proxy) { p.send([]byte{8, 1}); p.expect(KindAdd, "a"); p.send(make([]byte, 2*MaxMessage)) },
		"a hundred descriptors with the hello": func(p *proxy) { p.sendDescriptors([]byte{8, 1}, 100) },
		"a descriptor with an ack":             func(p *proxy) { p.send([]byte{8, 1}); p.expect(KindAdd, "a"); p.sendDescriptors([]byte{10, 0}, 1) },
		"unasked": func(p *proxy) {
			p.send([]byte{8, 1})
			p.take(KindAdd, "a")
			p.take(KindSnapshotSent, "")
			p.ack("")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin(t, Options{Timeout: patience})
			set(t, s, "a")
			good := connect(t, s, "a")
			bad := dial(t, s)
			misbehave(bad)
			bad.expectEnd()
			awaitConnections(s, 1)
			set(t, s, "b")
			good.take(KindAdd, "b")
			if err := s.Await(t.Context(), "b"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLateAck ends the connection of a proxy that takes too long: its answer could be taken for
// that to the next request.
func TestLateAck(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{Timeout: 100 * time.Millisecond})
	set(t, s, "a")
	p := dial(t, s)
	p.send(Hello{Version: Version1}.Marshal())
	p.expect(KindAdd, "a")
	settle(t, s, ErrDisconnected)
	p.expectEnd()
}

func TestClosedNamespace(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	if err := set(t, s, "a").Close(); err != nil {
		t.Fatal(err)
	}
	set(t, s, "b")
	connect(t, s, "b")
	settle(t, s, ErrRefused)
}

func TestSetRefuses(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	if err := s.Set(Workload{}, nil); !errors.Is(err, ErrMessage) {
		t.Errorf("a pod without a UID: %v", err)
	}
	if err := s.Set(Workload{UID: "a", Name: strings.Repeat("n", MaxMessage)}, nil); !errors.Is(err, ErrMessage) {
		t.Errorf("a pod with a long name: %v", err)
	}
	for name, namespace := range map[string]*interception.Netns{
		"zero": {}, "stand-in": interception.StandInNetns("x", interception.NetnsID{Inode: 1}),
	} {
		if err := s.Set(workload("a"), namespace); !errors.Is(err, interception.ErrNotNetns) {
			t.Errorf("%s namespace: %v", name, err)
		}
	}
	connect(t, s) // nothing was set
}

// TestManyAtOnce sets and deletes pods from many goroutines while proxies come and go.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	namespace := sandboxtest.NewPod(t).Netns
	answer := func(p *proxy) {
		for {
			data := make([]byte, MaxMessage)
			n, _, _, _, err := p.ReadMsgUnix(data, make([]byte, 128))
			if err != nil {
				return // the test is over
			}
			if _, err := ParseRequest(data[:n]); err != nil {
				t.Error(err)
			}
			if _, err := p.Write([]byte{0x0a, 0}); err != nil {
				return
			}
		}
	}
	for range 3 {
		p := dial(t, s)
		p.send(Hello{Version: Version1}.Marshal())
		go answer(p)
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			uid := fmt.Sprint("pod-", i)
			err := s.Set(workload(uid), namespace)
			if err == nil {
				err = s.Await(t.Context(), uid)
			}
			if s.Delete(uid); err == nil {
				err = s.Await(t.Context(), uid)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
