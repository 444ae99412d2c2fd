// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

var kills = flag.Int("kills", 400, "how many agents are killed that write by nftables, and a tenth of it by each flavour of iptables: "+
	"half of them enrol pods, the others withdraw them")

// life is what an agent that is killed is told.
type life struct {
	Dataplane, Socket, Journal, Host string
	Pods                             map[string]string // paths of namespaces by UID
	Enrolled                         bool
	Until                            ambient.Step // of pod a, before which it waits to be killed; empty to go on
	Reached                          string       // the file that it makes then
}

// TestKilled kills agents (SIGKILL) at random instants of enrolments and withdrawals, by each
// backend. The agent that follows brings each pod where it should be. Meanwhile the pods make
// connections: none fails, and from the first one that is captured on, all are, as long as the pods
// are wanted. By iptables that holds for each family by itself, a connection may wait for a second
// or more while a guard drops it, and half of the agents are killed with the programs that they
// run.
func TestKilled(t *testing.T) {
	t.Parallel()
	if task, is := victim.Task(); is {
		beKilled(t, task)
		return
	}
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, dataplane, dataplane
			if name == "nftables" {
				n.killInRounds(name, *kills, map[string]*dataplanetest.Pod{"a": n.pod("a"), "b": n.pod("b")})
			} else {
				n.familyByFamily = true
				n.killInRounds(name, *kills/10, map[string]*dataplanetest.Pod{"a": n.patient("a"), "b": n.patient("b")})
			}
		})
	}
}

func (n *node) killInRounds(dataplane string, rounds int, pods map[string]*dataplanetest.Pod) {
	t := n.t
	t.Helper()
	host := sandboxtest.NewPod(t)
	n.options.Host = host.Netns
	n.proxy()
	made := 0
	for round := range rounds {
		enrolled := round%4 < 2 // each follows itself as well as the other
		end := n.call(pods, round%4)
		n.kill(life{
			Dataplane: dataplane, Socket: n.options.Socket, Journal: n.options.Journal.Directory, Host: host.Namespace.Path(),
			Pods: n.paths, Enrolled: enrolled,
		}, round)
		if round%4 == 1 {
			made += end()
			for uid, pod := range pods {
				if !n.captured(pod) {
					t.Errorf("round %d: pod %s is not captured any more, and is wanted", round, uid)
				}
				n.connectOut(pod, 1)
			}
			continue
		}
		n.follow(enrolled)
		made += end()
		for uid, pod := range pods {
			n.connectOut(pod, map[bool]int{true: 1}[enrolled])
			if enrolled && differs(n.recorded(uid).Plan, n.state(pod)) || !enrolled && n.captured(pod) {
				t.Errorf("round %d: pod %s has other rules than those of its plan, enrolled %t", round, uid, enrolled)
			}
		}
	}
	t.Logf("the pods have made %d connections in %d rounds", made, rounds)
}

// call has pods make one connection after another, on alternating families, until end is called,
// which returns how many. In rounds 0 and 1 the pods are wanted: once a pod is captured, as it is
// at the start of round 1, all its connections have to be. In rounds 2 and 3 the same holds in
// reverse. No two connections have the same ports: the kernel takes one for the other, with its
// translation, for ten seconds after it was reset (nf_conntrack_tcp_timeout_close).
func (n *node) call(pods map[string]*dataplanetest.Pod, round int) (end func() int) {
	n.t.Helper()
	destinations := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:7::7")}
	wanted, changed := round < 2, map[string]bool{}
	of := func(uid string, family int) string {
		if n.familyByFamily {
			return fmt.Sprint(uid, family)
		}
		return uid
	}
	for uid := range pods {
		changed[of(uid, 0)], changed[of(uid, 1)] = round%2 == 1, round%2 == 1
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	made, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for uid, pod := range pods {
				before := n.relayed(pod)
				seen, err := pod.Send(n.t.Context(), dataplanetest.Probe{Dst: netip.AddrPortFrom(destinations[made%2], uint16(20000+n.calls.Add(1)%40000))})
				if err != nil || seen.Verdict != dataplanetest.Accepted || !seen.Answered {
					n.t.Errorf("round %d, pod %s: %s, %v, want that it is accepted and answered", round, uid, seen, err)
				}
				switch captured := n.relayed(pod) > before; {
				case captured == wanted:
					changed[of(uid, made%2)] = true
				case changed[of(uid, made%2)]:
					n.t.Errorf("round %d, pod %s: connection %d was captured: %t, and one before it was not so", round, uid, made, captured)
				}
				made++
			}
		}
	}()
	end = func() int {
		cancel()
		<-done
		return made
	}
	n.t.Cleanup(func() { end() })
	return end
}

// kill starts an agent and kills it: in four of eight rounds with the programs that it runs, if it
// runs any.
func (n *node) kill(l life, round int) {
	n.t.Helper()
	task, err := json.Marshal(l)
	if err != nil {
		n.t.Fatal(err)
	}
	process, err := victim.Start(n.t.Context(), n.t.Name(), string(task))
	if err != nil {
		n.t.Fatal(err)
	}
	longest := 40 * time.Millisecond
	if n.familyByFamily { // and programs run
		longest = 200 * time.Millisecond
	}
	instant := time.Duration(rand.Int64N(int64(longest)))
	end, err := process.Run(victim.Ending{When: victim.After(instant), Group: n.familyByFamily && round%8 < 4})
	if err != nil || !end.Killed {
		n.t.Fatalf("killed after %s: %+v, %v", instant, end, err)
	}
}

// follow runs an agent until all pods are where they should be, and tests what is left.
func (n *node) follow(enrolled bool) {
	n.t.Helper()
	a, end := n.run()
	defer end()
	n.feed <- all(enrolled)
	if !enrolled {
		n.awaitRest(a)
		if len(n.members()) > 0 || len(n.records()) > 0 {
			n.t.Errorf("members %v, records %v, want nothing", n.members(), n.records())
		}
		return
	}
	n.awaitPods(a, "that both pods are as wanted", bothServed)
	if len(n.records()) != 2 {
		n.t.Errorf("records %v, want one for each pod", n.records())
	}
}

// bothServed reports whether two pods are captured and served.
func bothServed(pods []Pod) bool { return served(pods) == 2 }

// served counts the pods that are captured and served.
func served(pods []Pod) (many int) {
	for _, pod := range pods {
		if pod.Step == "" && pod.Seen.Rules == ambient.PlannedRules && pod.Seen.Proxy == ambient.ProxyServes {
			many++
		}
	}
	return many
}

// all tells of all pods.
func all(enrolled bool) ambient.Change {
	change := told(optedOut("a"), optedOut("b"))
	if enrolled {
		change = told(object("a"), object("b"))
	}
	change.Complete = true
	return change
}

// beKilled runs an agent.
func beKilled(t *testing.T, task string) {
	t.Helper()
	var l life
	if err := json.Unmarshal([]byte(task), &l); err != nil {
		t.Fatal(err)
	}
	host, err := interception.OpenNetns(l.Host, interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, dataplane := newNode(t), hostDataplanes(t)[l.Dataplane]
	n.options.Dataplane, n.options.Sets = dataplane, dataplane
	n.options.Socket, n.options.Journal.Directory, n.options.Host, n.paths = l.Socket, l.Journal, host, l.Pods
	news := all(l.Enrolled)
	if l.Until != "" {
		n.options.Observe, news = l.until(), told(optedOut("a"), object("b"))
		news.Pods[0].Annotations = map[string]string{n.options.Vocabulary.Status: "enabled"} // so that there is one to clear
		if l.Enrolled {
			news = all(true)
		}
	}
	if err := victim.Serve(func() error {
		a, err := New(t.Context(), n.options)
		if err != nil {
			return err
		}
		go func() { n.feed <- news }()
		return a.Run(context.Background())
	}); err != nil {
		t.Fatal(err)
	}
}
