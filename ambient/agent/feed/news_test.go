// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// reader is what an agent knows from the changes that it was told of.
type reader struct {
	pods       map[string]ambient.Pod // by UID
	namespaces map[string]string      // their label a
	gone       []string
	complete   bool
}

func newReader() *reader {
	return &reader{pods: map[string]ambient.Pod{}, namespaces: map[string]string{}}
}

// learn takes over a change, and returns what a feed must not do.
func (r *reader) learn(change ambient.Change) (problems []string) {
	for _, namespace := range change.Namespaces {
		r.namespaces[namespace.Name] = namespace.Labels["a"]
	}
	for _, pod := range change.Pods {
		r.pods[pod.UID] = pod
		if _, is := r.namespaces[pod.Namespace]; !is {
			problems = append(problems, "pod "+pod.UID+" comes before its namespace "+pod.Namespace)
		}
	}
	for _, uid := range change.Gone {
		if _, is := r.pods[uid]; !is {
			problems = append(problems, "pod "+uid+" is gone, and was never there")
		}
		delete(r.pods, uid)
	}
	r.gone = append(r.gone, change.Gone...)
	r.complete = r.complete || change.Complete
	inhabited := map[string]bool{}
	for _, pod := range r.pods {
		inhabited[pod.Namespace] = true
	}
	// As an agent may do, the reader forgets namespaces without pods.
	maps.DeleteFunc(r.namespaces, func(name, _ string) bool { return !inhabited[name] })
	return problems
}

func named(uid, namespace, phase string) ambient.Pod {
	pod := ambient.Pod{Phase: phase}
	pod.UID, pod.Namespace, pod.Name = uid, namespace, "web-"+uid
	return pod
}

func label(name, value string) ambient.Namespace {
	return ambient.Namespace{Name: name, Labels: map[string]string{"a": value}}
}

// world makes random changes of a node, and remembers what they lead to.
type world struct {
	*rand.Rand
	pods       map[string]ambient.Pod
	namespaces map[string]string
	number     int
}

func (w *world) change() ambient.Change {
	w.number++
	value := fmt.Sprint(w.number)
	switch name := fmt.Sprint("ns-", w.IntN(3)); w.IntN(4) {
	case 0:
		w.namespaces[name] = value
		return ambient.Change{Namespaces: []ambient.Namespace{label(name, value)}}
	case 1:
		for uid := range w.pods {
			delete(w.pods, uid)
			return ambient.Change{Gone: []string{uid}}
		}
		return ambient.Change{}
	case 2:
		for uid, pod := range w.pods {
			pod.Phase = value
			w.pods[uid] = pod
			return ambient.Change{Pods: []ambient.Pod{pod}}
		}
		return ambient.Change{}
	default:
		change := ambient.Change{Pods: []ambient.Pod{named(value, name, value)}}
		if _, told := w.namespaces[name]; !told {
			w.namespaces[name] = value
			change.Namespaces = []ambient.Namespace{label(name, value)}
		}
		w.pods[value] = change.Pods[0]
		return change
	}
}

// labels are what a reader must know of the namespaces that have pods.
func (w *world) labels() map[string]string {
	labels := map[string]string{}
	for _, pod := range w.pods {
		labels[pod.Namespace] = w.namespaces[pod.Namespace]
	}
	return labels
}

// TestRandomChanges has a source that restarts, connections that break at any message, and an agent
// that reads at any time. In the end the agent knows what the source knows.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), pods: map[string]ambient.Pod{}, namespaces: map[string]string{}}
		c, r := NewClient("", ClientOptions{}), newReader()
		read := func() {
			change, _ := c.news.take()
			for _, problem := range r.learn(change) {
				t.Errorf("seed %d: %s", seed, problem)
			}
		}
		most := 0 // pods at once, as far as the source has told
		source, told := newView(), newAudience()
		c.news.begin()
		for range 200 {
			switch w.IntN(20) {
			case 0: // the source restarts
				source, told = newView(), newAudience()
				all := ambient.Change{Pods: slices.Collect(maps.Values(w.pods)), Complete: true}
				for name, value := range w.namespaces {
					all.Namespaces = append(all.Namespaces, label(name, value))
				}
				source.learn(all)
				c.news.begin()
			case 1: // the connection breaks
				told = newAudience()
				c.news.begin()
			case 2, 3, 4:
				read()
			default:
				source.learn(w.change())
			}
			if w.IntN(2) == 0 {
				continue
			}
			messages, _ := source.news(told)
			most = max(most, len(w.pods))
			for i, message := range messages {
				if w.IntN(50) == 0 && i < len(messages)-1 { // it breaks in the middle
					told = newAudience()
					c.news.begin()
					break
				}
				c.hear(message)
			}
			if size := len(c.news.pods); size > len(w.pods)+most {
				t.Fatalf("seed %d: %d pods are kept, and the node has %d", seed, size, len(w.pods))
			}
		}
		source.learn(ambient.Change{Complete: true})
		messages, _ := source.news(told)
		for _, message := range messages {
			c.hear(message)
		}
		read()
		if diff := cmp.Diff(w.pods, r.pods); diff != "" {
			t.Fatalf("seed %d: pods (-source +agent)\n%s", seed, diff)
		}
		if diff := cmp.Diff(w.labels(), r.namespaces); diff != "" {
			t.Errorf("seed %d: namespaces (-source +agent)\n%s", seed, diff)
		}
		if len(c.news.pods)+len(c.news.gone)+len(c.news.namespaces) > 0 || len(c.news.passed) != len(w.pods) {
			t.Errorf("seed %d: what was read is kept: %+v", seed, c.news)
		}
	}
}

// TestNothingIsPrunedEarly has a snapshot that misses a pod, which is gone only at its end.
func TestNothingIsPrunedEarly(t *testing.T) {
	t.Parallel()
	n := newNews()
	n.begin()
	for _, uid := range []string{"1", "2"} {
		n.pod(named(uid, "shop", ""))
	}
	n.completed()
	if change, _ := n.take(); len(change.Pods) != 2 || !change.Complete {
		t.Fatalf("got %+v", change)
	}
	for range 2 { // the first snapshot breaks off
		n.begin()
		n.pod(named("2", "shop", ""))
		if change, is := n.take(); !is || len(change.Gone) > 0 || change.Complete {
			t.Errorf("an incomplete snapshot says %+v", change)
		}
	}
	n.completed()
	if change, _ := n.take(); !cmp.Equal(change.Gone, []string{"1"}) || !change.Complete {
		t.Errorf("the complete snapshot says %+v", change)
	}
	if change, is := n.take(); is {
		t.Errorf("it says again %+v", change)
	}
}

// TestUnreadNews has a reader that does not read while many pods come and go.
func TestUnreadNews(t *testing.T) {
	t.Parallel()
	n := newNews()
	n.begin()
	n.namespace(label("kept", ""))
	n.pod(named("kept", "kept", ""))
	n.completed()
	n.take()
	n.pod(named("kept", "kept", "1"))
	for i := range 1000 {
		uid, namespace := fmt.Sprint(i), fmt.Sprint("ns-", i)
		n.namespace(label(namespace, ""))
		n.pod(named(uid, namespace, ""))
		n.end(uid)
	}
	n.namespace(label("kept", "1"))
	if len(n.pods) != 1 || len(n.namespaces) != 1 || len(n.gone) != 0 || len(n.passed) != 1 {
		t.Errorf("it keeps %d pods, %d namespaces, %d that are gone, %d that were told", len(n.pods), len(n.namespaces), len(n.gone), len(n.passed))
	}
	n.end("kept")
	n.pod(named("kept", "kept", "2"))
	if change, _ := n.take(); len(change.Gone) > 0 || len(change.Pods) != 1 {
		t.Errorf("a pod that is told again is gone: %+v", change)
	}
	n.end("kept")
	n.namespace(label("alone", ""))
	if n.begin(); len(n.namespaces) > 0 {
		t.Errorf("a namespace whose pods have not come is kept: %v", n.namespaces)
	}
	if change, _ := n.take(); !cmp.Equal(change.Gone, []string{"kept"}) || len(change.Pods)+len(change.Namespaces) > 0 {
		t.Errorf("got %+v", change)
	}
}

// TestWholePod has a source that tells more of a pod than ambient mode reads.
func TestWholePod(t *testing.T) {
	t.Parallel()
	c, pod := NewClient("", ClientOptions{}), named("1", "shop", "")
	pod.Containers = []interception.Container{{Name: "c"}}
	c.hear(&pod)
	if kept := c.news.pods["1"]; kept.Name != "web-1" || kept.Containers != nil {
		t.Errorf("it keeps %+v", kept)
	}
}

// TestNamespaceIsToldAgain has a namespace whose last pod goes before another one comes.
func TestNamespaceIsToldAgain(t *testing.T) {
	t.Parallel()
	v, a := newView(), newAudience()
	v.learn(ambient.Change{Namespaces: []ambient.Namespace{label("shop", "1"), label("empty", "")}, Pods: []ambient.Pod{named("1", "shop", "")}})
	one, two := named("1", "shop", ""), named("2", "shop", "")
	shop := label("shop", "1")
	for _, step := range []struct {
		change ambient.Change
		want   []any
	}{
		{ambient.Change{Complete: true}, []any{&shop, &one, &complete{}}},
		{ambient.Change{Pods: []ambient.Pod{one}, Namespaces: []ambient.Namespace{shop}, Complete: true}, nil},
		{ambient.Change{Pods: []ambient.Pod{two}, Gone: []string{"1"}}, []any{&two, &gone{"1"}}},
		{ambient.Change{Gone: []string{"2"}}, []any{&gone{"2"}}},
		{ambient.Change{Pods: []ambient.Pod{one}}, []any{&shop, &one}},
	} {
		if failures := v.learn(step.change); len(failures) > 0 {
			t.Fatal(failures)
		}
		messages, _ := v.news(a)
		if diff := cmp.Diff(step.want, messages); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", step.change, diff)
		}
	}
}

// TestUntold has a source that tells what cannot be sent: no agent counts as told of all pods until
// it is sent, or gone.
func TestUntold(t *testing.T) {
	t.Parallel()
	large := named("1", "shop", "")
	large.Annotations = map[string]string{"a": string(make([]byte, maxFromSource/6))}
	for name, remedy := range map[string]ambient.Change{
		"it is sent": {Pods: []ambient.Pod{named("1", "shop", "")}}, "it is gone": {Gone: []string{"1"}},
	} {
		v, a := newView(), newAudience()
		if failures := v.learn(ambient.Change{Pods: []ambient.Pod{large}, Complete: true}); len(failures) != 1 || failures["1"] == nil {
			t.Errorf("got failures %v", failures)
		}
		if messages, _ := v.news(a); len(messages) > 0 {
			t.Errorf("the agent is told %v", messages)
		}
		v.learn(remedy)
		if messages, _ := v.news(a); !slices.ContainsFunc(messages, func(m any) bool { _, is := m.(*complete); return is }) {
			t.Errorf("%s, and the agent is told %v", name, messages)
		}
	}
}
