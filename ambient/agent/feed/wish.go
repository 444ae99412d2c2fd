// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"maps"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// wishes are the statuses that pods must get, by UID, until the source has confirmed them. Of each
// pod there is only the latest one.
type wishes struct {
	pause  func(failures int) time.Duration
	number uint64 // of the last one
	all    map[string]*wish
}

type wish struct {
	annotation

	asked    uint64 // the number that the source has been asked with, and has not answered; 0 if none
	failures int
	again    time.Time // not before
}

// add takes over that a pod must get a status.
func (w *wishes) add(pod interception.Pod, status ambient.Status) {
	of := w.all[pod.UID]
	if of == nil {
		of = &wish{}
		w.all[pod.UID] = of
	} else if of.Status == status {
		return
	}
	w.number++
	of.annotation = annotation{Number: w.number, Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Status: status}
}

// begin makes all due on a new connection, whose source has been asked for none.
func (w *wishes) begin() {
	for _, each := range w.all {
		each.asked, each.failures, each.again = 0, 0, time.Time{}
	}
}

// keep forgets the pods that do not exist any more.
func (w *wishes) keep(living map[string]bool) {
	maps.DeleteFunc(w.all, func(uid string, _ *wish) bool { return !living[uid] })
}

func (w *wishes) forget(uid string) { delete(w.all, uid) }

// left returns how many of these pods, or of all if there is no UID, have no confirmed status yet.
func (w *wishes) left(uids []string) (left int) {
	if len(uids) == 0 {
		return len(w.all)
	}
	for _, uid := range uids {
		if w.all[uid] != nil {
			left++
		}
	}
	return left
}

// due returns what to ask the source for now, and counts it as asked. The source is asked for one
// status of a pod at a time. If more is due later without any other change, wait is not 0.
func (w *wishes) due(now time.Time) (ask []annotation, wait time.Duration) {
	for _, each := range w.all {
		left := each.again.Sub(now)
		switch {
		case each.asked != 0:
		case left <= 0:
			each.asked = each.Number
			ask = append(ask, each.annotation)
		case wait == 0 || left < wait:
			wait = left
		}
	}
	return ask, wait
}

// answered notes the source's answer, and returns the UID of the pod; "" if it was not asked.
func (w *wishes) answered(a answer, now time.Time) (uid string) {
	for uid, each := range w.all {
		if each.asked != a.Number || a.Number == 0 {
			continue
		}
		each.asked = 0
		if a.Result == resultDone {
			w.hurry(now)
		}
		switch {
		case a.Result == resultGone, a.Result == resultDone && each.Number == a.Number:
			w.forget(uid)
		case a.Result == resultDone: // another status is wanted since
			each.failures, each.again = 0, time.Time{}
		default:
			each.failures++
			each.again = now.Add(w.pause(each.failures))
		}
		return uid
	}
	return ""
}

// hurry shortens the pauses of all wishes to a first one: the source has written a status, so that
// what has failed before may succeed.
func (w *wishes) hurry(now time.Time) {
	soon := now.Add(w.pause(1))
	for _, each := range w.all {
		if each.again.After(soon) {
			each.again = soon
		}
	}
}
