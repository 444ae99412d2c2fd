// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestStepIsAnnouncedBeforeItIsDone(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := progress{out: &out}
	var announced string
	err := p.step("make a node", func() (string, error) {
		announced = out.String()
		return "two\nlines", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(announced, "  make a node ...") || strings.Contains(announced, "\n") {
		t.Errorf("announced %q, want the step's name alone", announced)
	}
	if done := strings.TrimPrefix(out.String(), announced); !strings.HasPrefix(done, "✓ ") || !strings.HasSuffix(done, "ms\n      two\n      lines\n") {
		t.Errorf("then %q, want a tick, the time and the detail", done)
	}
}

func TestFailedStepIsNamed(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	failure := errors.New("no space")
	err := progress{out: &out}.step("make a node", func() (string, error) { return "all is well", failure })
	if !errors.Is(err, failure) || !strings.HasPrefix(err.Error(), "make a node: ") {
		t.Errorf("error is %v, want one that names the step", err)
	}
	if !strings.Contains(out.String(), "✗") || strings.Contains(out.String(), "all is well") {
		t.Errorf("output is %q, want a cross and no detail", out.String())
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		1234 * time.Millisecond:  "1.23 s",
		12345 * time.Microsecond: "12 ms",
		1234 * time.Microsecond:  "1.2 ms",
	} {
		if got := duration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
