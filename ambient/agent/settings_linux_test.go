// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/tally"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/nftables"
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
			n.proxy()
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
	n.awaitProxy(a)
	n.connect(pod, 1)
}

// awaitProxy starts a proxy and waits until it serves pod a.
func (n *node) awaitProxy(a *Agent) {
	n.t.Helper()
	n.proxy()
	n.awaitStatus(a, "a", ambient.StatusEnabled)
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
	n.awaitProxy(a)
	n.connect(pod, 1)
}

// TestInvalidUID has a UID that no file can be named after. Another pod is served.
func TestInvalidUID(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("../a")
	pod := n.pod("b")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("../a"), object("b"))
	n.awaitStatus(a, "b", ambient.StatusEnabled)
	n.connect(pod, 1)
	n.awaitPods(a, "that ../a has no record", func(pods []Pod) bool {
		return slices.ContainsFunc(pods, func(p Pod) bool { return p.UID == "../a" && errors.Is(p.Err, journal.ErrAttachment) })
	})
}

// TestLongAnnotations has a pod with 64 KiB of an annotation that does not parse: it is refused.
// Another pod with as long an annotation is enrolled.
func TestLongAnnotations(t *testing.T) {
	t.Parallel()
	const key, length = "traffic.istio.io/excludeOutboundIPRanges", 64 << 10
	n := newNode(t)
	refused := n.pod("a")
	pod := n.pod("b")
	a, _ := n.run()
	n.proxy()
	invalid, valid := object("a"), object("b")
	invalid.Annotations = map[string]string{key: strings.Repeat("x", length)}
	valid.Annotations = map[string]string{key: longList(length)}
	n.feed <- told(invalid, valid)
	n.awaitStatus(a, "b", ambient.StatusEnabled)
	n.connect(pod, 1)
	n.awaitPods(a, "that the annotation of a does not parse", func(pods []Pod) bool {
		return slices.ContainsFunc(pods, func(p Pod) bool {
			wrong, doesNotParse := errors.AsType[*interception.ParseError](p.Err)
			return p.UID == "a" && doesNotParse && wrong.Source.Key == key
		})
	})
	if n.captured(refused) || n.served(refused) || !n.served(pod) {
		t.Error("the refusal has changed something")
	}
}

// longList returns a list of prefixes of about so many bytes.
func longList(bytes int) string {
	var list strings.Builder
	for i := 0; list.Len() < bytes; i++ {
		fmt.Fprintf(&list, "172.%d.%d.0/32,", 16+i>>8, i&255)
	}
	return strings.TrimSuffix(list.String(), ",")
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
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	end()
	return n.recorded("a")
}

// TestDamagedRecord has the record of pod a damaged while no agent runs. The next agent works all
// the same, also for pod a.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	for name, wanted := range map[string]bool{"wanted": true, "not wanted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			pods := map[string]*dataplanetest.Pod{"a": n.pod("a"), "b": n.pod("b")}
			a, end := n.run()
			n.proxy()
			n.feed <- all(true)
			n.awaitStatus(a, "a", ambient.StatusEnabled)
			n.awaitStatus(a, "b", ambient.StatusEnabled)
			end()
			file, err := filepath.Glob(filepath.Join(n.options.Journal.Directory, "*@a@*"))
			if err != nil || len(file) != 1 {
				t.Fatal(file, err)
			}
			if err := os.WriteFile(file[0], []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
			a, _ = n.run()
			if got := a.Pods(); !slices.ContainsFunc(got, func(p Pod) bool { return p.UID == "a" && errors.Is(p.Err, journal.ErrRecord) }) {
				t.Errorf("got %+v, want the damage of a's record", got)
			}
			n.feed <- all(wanted)
			if !wanted {
				n.awaitRest(a)
				if n.captured(pods["a"]) || len(n.records()) > 0 {
					t.Errorf("captured %t, records %v", n.captured(pods["a"]), n.records())
				}
				return
			}
			n.awaitPods(a, "that both pods are as wanted", bothServed)
			n.connect(pods["a"], 1)
			if got := n.recorded("a"); differs(got.Plan, n.state(pods["a"])) {
				t.Errorf("the new record is of another plan:\n%s", got.Plan)
			}
		})
	}
}

// TestToldAgain checks that the agent looks at a pod when the feed tells of a change, and not when
// it tells the same again.
func TestToldAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a, err := New(t.Context(), n.options)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(a, "a")
	a.workers["a"] = w
	labelled := told()
	labelled.Namespaces[0].Labels = map[string]string{"changed": "true"}
	for i, change := range []struct {
		ambient.Change
		nudges bool
	}{
		{told(object("a")), true},
		{told(object("a")), false},
		{told(optedOut("a")), true},
		{labelled, true},
		{labelled, false},
		{told(object("b")), true}, // the namespace has no label any more
		{ambient.Change{Pods: []ambient.Pod{object("b")}}, false},
	} {
		w.begin()
		if a.learn(change.Change); w.nudged != change.nudges {
			t.Errorf("change %d: the worker looks again: %t, want %t", i, w.nudged, change.nudges)
		}
	}
}

// TestAddressesChange gives a running pod other addresses: the host's sets have these alone.
func TestAddressesChange(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("a")
	a, _ := n.run()
	n.proxy()
	for _, texts := range [][]string{{"10.244.1.10", "fd00:10:244:1::a"}, {"10.244.1.11", "fd00:10:244:1::a"}, {"10.244.1.11"}, {}} {
		pod, want := object("a"), slices.Clone(texts)
		pod.Addresses = nil
		for i, text := range texts {
			pod.Addresses, want[i] = append(pod.Addresses, netip.MustParseAddr(text)), text+" a"
		}
		if len(texts) == 0 { // the last ones stay until the pod has others, or is gone
			want = []string{"10.244.1.11 a"}
		}
		n.feed <- told(pod)
		n.await(func() bool { return slices.Equal(n.members(), want) }, func() string {
			return fmt.Sprintf("members %v, want %v; the agent says %s", n.members(), want, describe(a))
		})
	}
}

// TestFullDisk has no room for records: a pod without a record is not touched. It is enrolled as
// soon as there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	disk := onTmpfs(t, "size=64k")
	n.options.Journal.Directory = filepath.Join(disk, "journal")
	rest := filepath.Join(disk, "rest")
	if err := os.WriteFile(rest, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a file that is larger than the disk: %v", err)
	}
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitPods(a, "that there is no room", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepEnter && errors.Is(pods[0].Err, unix.ENOSPC)
	})
	if n.captured(pod) || len(n.members()) > 0 {
		t.Errorf("captured %t, members %v, want neither", n.captured(pod), n.members())
	}
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.connect(pod, 1)
}

// TestEnrolEndsWithRun has the agent end while the plugin waits.
func TestEnrolEndsWithRun(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"unknown pod": false, "no proxy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			pod := n.pod("a")
			delete(n.paths, "a")
			a, end := n.run()
			if known {
				n.feed <- told(object("a"))
			}
			answer := make(chan error, 1)
			go func() {
				_, err := n.hand(t.Context(), a, "a", pod)
				answer <- err
			}()
			if known {
				n.awaitPods(a, "that the plugin has handed pod a over", func(pods []Pod) bool { return len(pods) == 1 && pods[0].Seen.Open })
			}
			end()
			if err := <-answer; !errors.Is(err, ErrStopped) {
				t.Errorf("got %v, want ErrStopped", err)
			}
		})
	}
}

// TestNamespaceIsReplacedMeanwhile has a pod whose network was replaced while no agent ran.
func TestNamespaceIsReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("a")
	first, end := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(first, "a", ambient.StatusEnabled)
	former := n.recorded("a").NetnsID
	end()
	pod := n.pod("a")
	second, _ := n.run()
	n.feed <- told(object("a"))
	n.awaitPods(second, "that the pod is as wanted", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == "" && pods[0].Seen.Proxy == ambient.ProxyServes
	})
	n.connect(pod, 1)
	if n.recorded("a").NetnsID == former {
		t.Error("the record is of the former namespace")
	}
}

// TestForeignRules enrols a pod in which another program has rules of its own.
func TestForeignRules(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	other, err := interception.Build("other-program", func(b *interception.Builder) {
		chain := b.Filter("other")
		chain.Entry(interception.Output, interception.Match{}, "all")
		chain.Do("drop", interception.Match{L4: interception.UDP()}, interception.Drop{}, "no datagrams")
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Apply(t.Context(), n.dataplane, other); err != nil {
		t.Fatal(err)
	}
	if n.dataplane, err = nftables.New(nftables.Options{Foreign: true}); err != nil {
		t.Fatal(err)
	}
	n.options.Dataplane = n.dataplane
	var applied atomic.Int32
	n.options.Observe = func(p Pod) {
		if p.Step == ambient.StepApply {
			applied.Add(1)
		}
		n.observe(p)
	}
	n.proxy()
	for range 2 { // the second agent finds what the first has applied
		a, end := n.run()
		n.feed <- told(object("a"))
		n.awaitPods(a, "that the pod is as wanted", func(pods []Pod) bool {
			return len(pods) == 1 && pods[0].Step == "" && pods[0].Seen.Status == ambient.StatusEnabled && pods[0].Seen.Proxy == ambient.ProxyServes
		})
		n.connect(pod, 1)
		end()
	}
	if got := applied.Load(); got != 1 {
		t.Errorf("the plan was applied %d times, want once", got)
	}
}

// TestMembersAreUnknown has sets that were not read yet: a pod may have an address there, and it
// does not count as entered.
func TestMembersAreUnknown(t *testing.T) {
	t.Parallel()
	s := sets{options: &newNode(t).options, tally: tally.New(nil)}
	if !s.holdsAny("a") || s.holds("a", addresses) {
		t.Errorf("any %t, these %t, want any alone", s.holdsAny("a"), s.holds("a", addresses))
	}
	if err := s.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.holdsAny("a") || s.holds("a", addresses) {
		t.Errorf("once they are read, any %t, these %t, want neither", s.holdsAny("a"), s.holds("a", addresses))
	}
}

// TestEventsAtOnce hands a namespace over, and then another one twice, before a proxy serves.
func TestEventsAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	former, latter := n.pod("a"), n.pod("a")
	delete(n.paths, "a")
	a, _ := n.run()
	n.feed <- told(object("a"))
	hand := func(pod *dataplanetest.Pod) <-chan error {
		answer := make(chan error, 1)
		go func() {
			_, err := n.hand(t.Context(), a, "a", pod)
			answer <- err
		}()
		return answer
	}
	replaced := hand(former)
	n.awaitPods(a, "that it has taken the namespace", func(pods []Pod) bool { return len(pods) == 1 && pods[0].Step == ambient.StepTell })
	answers := []<-chan error{hand(latter), hand(latter)}
	if err := <-replaced; !errors.Is(err, ErrReplaced) {
		t.Errorf("the former namespace: %v, want ErrReplaced", err)
	}
	n.awaitProxy(a)
	for _, answer := range answers {
		if err := <-answer; err != nil {
			t.Errorf("the latter namespace: %v", err)
		}
	}
	n.connect(latter, 1)
}
