// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception"
)

// counts collects what the agent counts.
type counts struct {
	node     *node
	times    map[string]int // guarded by node.mu
	duration time.Duration  // of the last enrolment
}

func (n *node) count() *counts {
	c := &counts{node: n, times: map[string]int{}}
	n.options.Count = func(one Count) {
		n.mu.Lock()
		defer n.mu.Unlock()
		c.times[fmt.Sprintf("%s %s", one.What, one.Of)] += one.Times
		if one.What == CountEnrolled {
			c.duration = one.Duration
		}
		n.news()
	}
	return c
}

// await waits until something was counted so often.
func (c *counts) await(key string, want int) {
	c.node.t.Helper()
	get := func() int {
		c.node.mu.Lock()
		defer c.node.mu.Unlock()
		return c.times[key]
	}
	c.node.await(func() bool { return get() == want }, func() string {
		return fmt.Sprintf("%q was counted %d times, want %d", key, get(), want)
	})
}

// TestCounts enrols a pod, has other programs change everything that the agent keeps, and takes the
// pod out.
func TestCounts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.ListenerRound = 100 * time.Millisecond
	c := n.count()
	pod := n.pod("a")
	a, end := n.run()
	proxy := n.standIn(ambienttest.ProxyOptions{})
	n.feed <- told(object("a"), optedOut("b"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	c.await("change add", 2)
	c.await("edit add", 2)
	c.await("enrolled feed", 1)
	if c.duration <= 0 || c.duration > time.Minute {
		t.Errorf("the enrolment took %s", c.duration)
	}
	namespace, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	n.flush(namespace)
	c.await("drift rules", 1)
	c.await("healed rules", 1)
	proxy.LoseListeners("a")
	c.await("drift listeners", 1)
	c.await("healed listeners", 1)
	n.flush(n.options.Host)
	for _, kind := range []string{"drift", "healed"} {
		c.await(kind+" host", 1)
		c.await(kind+" sets", 2)
	}
	end()

	// The next agent finds a pod with a record, and nothing changed.
	seen := n.count()
	next, _ := n.run()
	n.feed <- told(object("a"))
	n.awaitPods(next, "the pod is as wanted", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Wanted.Enrolled && pods[0].Step == "" && pods[0].Seen.Rules == ambient.PlannedRules
	})
	n.feed <- ambient.Change{Pods: []ambient.Pod{optedOut("a")}}
	seen.await("change update", 1)
	seen.await("edit remove", 2)
	n.feed <- ambient.Change{Gone: []string{"a", "never told"}}
	seen.await("change delete", 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if seen.times["enrolled feed"] > 0 || seen.times["drift rules"] > 0 || seen.times["drift host"] > 0 {
		t.Errorf("the next agent counts %v", seen.times)
	}
}
