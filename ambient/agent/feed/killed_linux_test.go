// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

var kills = flag.Int("kills", 20, "how many processes of each side are killed")

// lasting are the pods that each source of these tests tells of: many messages, and some are large.
func lasting() ambient.Change {
	var uids []string
	for i := range 200 {
		uids = append(uids, fmt.Sprint("lasting-", i))
	}
	change := told(true, uids...)
	for i := range change.Pods {
		change.Pods[i].Annotations = map[string]string{"a": strings.Repeat("x", 1<<(i%16))}
	}
	return change
}

// kill starts a copy of this test and kills it (SIGKILL) at a random instant of its work.
func kill(t *testing.T, task string) {
	t.Helper()
	process, err := victim.Start(t.Context(), t.Name(), task)
	if err != nil {
		t.Fatal(err)
	}
	instant := rand.N(20 * time.Millisecond)
	if end, err := process.Run(victim.Ending{When: victim.After(instant)}); err != nil || !end.Killed {
		t.Fatalf("killed after %v: %+v, %v", instant, end, err)
	}
}

// TestKilledSources kills sources. What their agent knows of pods that go on to live stays.
func TestKilledSources(t *testing.T) {
	t.Parallel()
	if path, is := victim.Task(); is {
		c := newCluster()
		change := lasting()
		change.Pods = append(change.Pods, named(fmt.Sprint(rand.Int()), "shop", ""))
		c.changes <- change
		if err := victim.Serve(func() error {
			server, err := Listen(t.Context(), path, ServerOptions{Source: c, Annotator: c})
			if err != nil {
				return err
			}
			return server.Serve(t.Context())
		}); err != nil {
			t.Fatal(err)
		}
		return
	}
	path := socketPath(t)
	a := begin(t, path)
	for range *kills {
		kill(t, path)
		a.learnAll()
	}
	c := newCluster()
	c.serve(t, path, ServerOptions{})
	final := lasting()
	c.changes <- final
	a.await("a snapshot", func() bool { return a.complete && len(a.pods) == len(final.Pods) })
	for _, uid := range a.gone {
		if strings.HasPrefix(uid, "lasting-") {
			t.Errorf("pod %s was taken for gone", uid)
		}
	}
	if a.connections() < 2 {
		t.Errorf("%d connections: no source was killed while it told", a.connections())
	}
}

// learnAll reads what there is to read, without waiting.
func (a *agent) learnAll() {
	a.t.Helper()
	a.mu.Lock()
	change, _ := a.news.take()
	a.mu.Unlock()
	for _, problem := range a.learn(change) {
		a.t.Error(problem)
	}
}

// connections returns how many times both sides said hello.
func (a *agent) connections() int {
	return a.observed.count(Connected)
}

// TestKilledAgents kills agents. Their source serves the next one.
func TestKilledAgents(t *testing.T) {
	t.Parallel()
	if path, is := victim.Task(); is {
		if err := victim.Serve(func() error {
			client := NewClient(path, ClientOptions{})
			go client.Run(t.Context())
			for {
				change, err := client.Next(t.Context())
				if err != nil {
					return err
				}
				for _, pod := range change.Pods {
					client.Annotate(pod.Pod, ambient.StatusEnabled)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		return
	}
	path, c := socketPath(t), newCluster()
	r := c.requests()
	stop, observed := c.serve(t, path, ServerOptions{})
	all := lasting()
	c.changes <- all
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go r.answerAll(ctx)
	for range *kills {
		kill(t, path)
	}
	a := begin(t, path)
	a.await("a snapshot", func() bool { return a.complete && len(a.pods) == len(all.Pods) })
	observed.await(t, "of an end", func(e Event) bool { return e.Kind == Disconnected })
	_ = stop() // it waits for all connections
}

// answerAll annotates whatever it is asked for.
func (r *requests) answerAll(ctx context.Context) {
	for {
		select {
		case <-r.calls:
		case <-r.status:
		case r.answers <- nil:
		case <-ctx.Done():
			return
		}
	}
}
