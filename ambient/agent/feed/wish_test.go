// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
)

func newWishes() *wishes {
	return &wishes{pause: func(failures int) time.Duration { return time.Duration(failures) * time.Second }, all: map[string]*wish{}}
}

// ask returns what is due; there must be one request at most.
func (w *wishes) ask(t *testing.T, now time.Time) (annotation, time.Duration) {
	t.Helper()
	due, wait := w.due(now)
	switch len(due) {
	case 0:
		return annotation{}, wait
	case 1:
		return due[0], wait
	}
	t.Fatalf("asks for %+v", due)
	return annotation{}, 0
}

// TestLatestWish asks for one status of a pod after the other, and skips what is out of date.
func TestLatestWish(t *testing.T) {
	t.Parallel()
	w, now, one := newWishes(), time.Now(), named("1", "shop", "").Pod
	w.add(one, ambient.StatusPending)
	first, _ := w.ask(t, now)
	w.add(one, ambient.StatusPending) // which the source is being asked for
	w.add(one, ambient.NoStatus)
	w.add(one, ambient.StatusEnabled)
	if second, wait := w.ask(t, now); second.Number != 0 || wait != 0 {
		t.Errorf("asks for %+v before the answer to %+v", second, first)
	}
	if uid := w.answered(answer{Number: first.Number, Result: resultDone}, now); uid != "1" {
		t.Errorf("the answer is about %q", uid)
	}
	last, _ := w.ask(t, now)
	if first.Status != ambient.StatusPending || last.Status != ambient.StatusEnabled || last.UID != "1" || last.Namespace != "shop" || last.Name != "web-1" {
		t.Errorf("asks for %+v, then %+v", first, last)
	}
	if uid := w.answered(answer{Number: first.Number, Result: resultDone}, now); uid != "" || len(w.all) != 1 {
		t.Errorf("a second answer is about %q, and %d are left", uid, len(w.all))
	}
	w.answered(answer{Number: last.Number, Result: resultDone}, now)
	if len(w.all) != 0 {
		t.Errorf("%d are left", len(w.all))
	}
	w.add(one, ambient.StatusEnabled)
	if uid := w.answered(answer{Result: resultDone}, now); uid != "" || len(w.all) != 1 {
		t.Errorf("an answer to no question is about %q", uid)
	}
	asked, _ := w.ask(t, now)
	w.add(one, ambient.StatusEnabled)
	if w.answered(answer{Number: asked.Number, Result: resultDone}, now); len(w.all) != 0 {
		t.Error("it asks again for what the source has confirmed")
	}
}

// TestWishAgain asks again after the pauses, and at once on a new connection.
func TestWishAgain(t *testing.T) {
	t.Parallel()
	w, now, one := newWishes(), time.Now(), named("1", "shop", "").Pod
	w.add(one, ambient.StatusEnabled)
	for failures, result := range []result{resultAgain, "of a later release"} {
		asked, _ := w.ask(t, now)
		w.answered(answer{Number: asked.Number, Result: result}, now)
		pause := time.Duration(failures+1) * time.Second
		if again, wait := w.ask(t, now); again.Number != 0 || wait != pause {
			t.Errorf("after %d failures it asks for %+v, and again in %v", failures+1, again, wait)
		}
		now = now.Add(pause)
	}
	if asked, _ := w.ask(t, now); asked.UID != "1" {
		t.Error("it does not ask again")
	}
	w.begin()
	asked, _ := w.ask(t, now)
	if asked.UID != "1" {
		t.Error("it does not ask on a new connection")
	}
	w.answered(answer{Number: asked.Number, Result: resultAgain}, now)
	if _, wait := w.ask(t, now); wait != time.Second {
		t.Errorf("it counts the failures of an earlier connection: it asks again in %v", wait)
	}
}

// TestWishesHurry asks again after a first pause, however often it failed, when the source has
// written another pod's status.
func TestWishesHurry(t *testing.T) {
	t.Parallel()
	w, now := newWishes(), time.Now()
	w.add(named("1", "shop", "").Pod, ambient.StatusEnabled)
	for range 4 {
		asked, _ := w.ask(t, now)
		w.answered(answer{Number: asked.Number, Result: resultAgain}, now)
		_, wait := w.ask(t, now)
		now = now.Add(wait)
	}
	asked, _ := w.ask(t, now)
	w.answered(answer{Number: asked.Number, Result: resultAgain}, now)
	if _, wait := w.ask(t, now); wait < 3*time.Second {
		t.Fatalf("it waits %v after failures", wait)
	}
	w.add(named("2", "shop", "").Pod, ambient.StatusEnabled)
	other, _ := w.ask(t, now)
	w.answered(answer{Number: other.Number, Result: resultDone}, now)
	if _, wait := w.ask(t, now); wait != time.Second {
		t.Errorf("it waits %v after the source has written a status", wait)
	}
}

// TestForgottenWishes are those of pods that are gone.
func TestForgottenWishes(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *Client, number uint64){
		"told":      func(c *Client, _ uint64) { c.hear(&gone{"1"}) },
		"not named": func(c *Client, _ uint64) { c.news.begin(); c.hear(&complete{}) },
		"answered":  func(c *Client, number uint64) { c.hear(&answer{Number: number, Result: resultGone}) },
		"another wish": func(c *Client, number uint64) {
			c.Annotate(named("1", "shop", "").Pod, ambient.NoStatus)
			c.hear(&answer{Number: number, Result: resultGone})
		},
	} {
		c := NewClient("", ClientOptions{})
		c.Annotate(named("1", "shop", "").Pod, ambient.StatusEnabled)
		asked, _ := c.wishes.ask(t, time.Now())
		if end(c, asked.Number); len(c.wishes.all) > 0 {
			t.Errorf("%s: %d are left", name, len(c.wishes.all))
		}
	}
	c := NewClient("", ClientOptions{})
	c.Annotate(named("1", "shop", "").Pod, ambient.StatusEnabled)
	c.news.begin()
	c.hear(&ambient.Pod{Pod: named("1", "shop", "").Pod})
	if c.hear(&complete{}); len(c.wishes.all) != 1 {
		t.Error("the wish for a pod that lives is forgotten")
	}
}

// TestImpossibleWish has a pod without names, which no source could be asked for.
func TestImpossibleWish(t *testing.T) {
	t.Parallel()
	var events []Event
	c := NewClient("", ClientOptions{Observe: func(e Event) { events = append(events, e) }})
	c.Annotate(ambient.Pod{}.Pod, ambient.StatusEnabled)
	if len(c.wishes.all) != 0 || len(events) != 1 || events[0].Kind != NotAnnotated || events[0].Err == nil {
		t.Errorf("%d wishes, events %+v", len(c.wishes.all), events)
	}
}
