// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

func TestFeedAwaitsStatus(t *testing.T) {
	t.Parallel()
	f := newPodFeed()
	annotate := func(uid string, status ambient.Status) {
		if err := f.Annotate(t.Context(), interception.Pod{UID: uid}, status); err != nil {
			t.Error(err)
		}
	}
	if f.haveStatus(ambient.NoStatus, "a")() {
		t.Error("a pod that was never annotated has lost its status")
	}
	annotate("a", ambient.StatusEnabled)
	if f.haveStatus(ambient.StatusEnabled, "a", "b")() {
		t.Error("a pod without a status counts")
	}
	go annotate("b", ambient.StatusEnabled)
	if _, err := f.await(t.Context(), "both are enrolled", f.haveStatus(ambient.StatusEnabled, "a", "b")); err != nil {
		t.Error(err)
	}
}

func TestFeedReadsReports(t *testing.T) {
	t.Parallel()
	f := newPodFeed()
	f.read(strings.NewReader(`{"pod":{"uid":"a","step":"await-drained","wanted":true}}` + "\n" + `{"pod":{"uid":"b","step":"open","error":"not found"}}` + "\n"))
	if !f.drain("a")() || f.drain("a", "b")() {
		t.Errorf("the steps are %v", f.steps)
	}
	if _, err := f.await(t.Context(), "never", func() bool { return false }); !errors.Is(err, errReportsEnd) {
		t.Errorf("waiting for a program that has ended: %v", err)
	}
	if _, err := f.await(t.Context(), "a drains", f.drain("a")); err != nil {
		t.Errorf("what has happened before the end: %v", err)
	}
}

func TestFeedReadsNoOtherText(t *testing.T) {
	t.Parallel()
	f := newPodFeed()
	f.read(strings.NewReader("panic: nothing\n"))
	if _, err := f.await(t.Context(), "never", func() bool { return false }); err == nil || errors.Is(err, errReportsEnd) || errors.Is(err, io.EOF) {
		t.Errorf("got %v, want why the report is not read", err)
	}
}

func TestFeedGivesUp(t *testing.T) {
	t.Parallel()
	f := newPodFeed()
	f.note(func() { f.problems["a"] = "not found" })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.await(ctx, "the pods are enrolled", func() bool { return false })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the pods are enrolled") || !strings.Contains(err.Error(), "a:not found") {
		t.Errorf("got %v, want what was waited for, and what is known", err)
	}
	if _, err := f.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the next change: %v", err)
	}
}
