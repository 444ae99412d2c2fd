// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

func TestHandOver(t *testing.T) {
	t.Parallel()
	asked := make(chan time.Duration, 10)
	socket, _ := serveWith(t, event.Options{Enroller: &enroller{}, HandOver: func(started time.Duration) error {
		asked <- started
		if started < time.Hour {
			return &event.Error{Code: event.CodeRefused, Message: "it is older"}
		}
		return nil
	}})
	if err := event.HandOver(t.Context(), socket, 25*time.Hour+time.Nanosecond); err != nil {
		t.Error(err)
	}
	if got := <-asked; got != 25*time.Hour+time.Nanosecond {
		t.Errorf("the other process was started at %s", got)
	}
	if own, is := errors.AsType[*event.Error](event.HandOver(t.Context(), socket, time.Minute)); !is || own.Code != event.CodeRefused {
		t.Errorf("an older process gets %v", own)
	}
	<-asked
	for _, body := range []string{"", "{}", `{"started":"-1s"}`, `{"started":"now"}`} {
		if status, got := exchange(t, socket, post("/v1/handover", body)); status != 400 || !strings.Contains(got, "invalid request") {
			t.Errorf("%q: %d %q", body, status, got)
		}
	}
	if len(asked) > 0 {
		t.Error("an invalid request ends the agent")
	}
	other, _ := serve(t, &enroller{})
	if own, is := errors.AsType[*event.Error](event.HandOver(t.Context(), other, time.Minute)); !is || own.Code != event.CodeProtocol {
		t.Errorf("an agent that cannot hand over: %v", own)
	}
}
