// SPDX-License-Identifier: Apache-2.0

package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/internal/testing/testlog"
)

// TestMain is also the program, if it is called with a behaviour to play.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2]))
	}
	os.Exit(m.Run())
}

func play(what string) int {
	switch what {
	case "fail":
		fmt.Fprintln(os.Stderr, `{"time":"2026-11-21T12:00:00Z","level":"ERROR","msg":"ended","error":"no such server"}`)
		return 1
	case "panic":
		fmt.Fprintln(os.Stderr, "panic: oh")
		return 2
	case "report":
		fmt.Printf("%d variables\nand more\n", len(os.Environ()))
		_, _ = io.Copy(io.Discard, os.Stdin) // however the input ends
		fmt.Println("the input has ended")
	case "ignore":
		fmt.Println("begun")
		time.Sleep(time.Hour)
	}
	return 0
}

// process returns a program that plays, and its lines.
func process(play string) (p Process, lines chan string, log *testlog.Log) {
	lines, log = make(chan string, 100), testlog.New()
	return Process{
		Name: "player", Command: []string{os.Args[0], "play", play}, Log: slog.New(slog.NewTextHandler(log, nil)),
		OnLine: func(line []byte) { lines <- string(line) },
	}, lines, log
}

// TestEnds: the error says why the program has ended, with what it logged.
func TestEnds(t *testing.T) {
	t.Parallel()
	for play, want := range map[string]string{
		"fail": "exit status 1: ended: no such server", "panic": "exit status 2: panic: oh", "nothing": "it ended unexpectedly",
	} {
		p, _, log := process(play)
		if err := p.Run(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", play, err, want)
		}
		if text := log.String(); play != "nothing" && !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "from=player") && play != "nothing" {
			t.Errorf("%s: log:\n%s", play, text)
		}
	}
	p, _, _ := process("")
	p.Command = []string{"/no/such/program"}
	if err := p.Run(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
}

// TestEndsWithItsContext: the program sees the end of its input, and says so. One that ignores it
// is killed.
func TestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	enough := errors.New("that is enough")
	for play, want := range map[string][]string{
		"report": {"0 variables", "and more", "the input has ended"}, "ignore": {"begun"},
	} {
		t.Run(play, func(t *testing.T) {
			t.Parallel()
			p, lines, _ := process(play)
			ctx, end := context.WithCancelCause(t.Context())
			var got []string
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			got = append(got, <-lines)
			end(enough)
			if err := <-done; !errors.Is(err, enough) {
				t.Errorf("got %v", err)
			}
			close(lines)
			if got = slices.AppendSeq(got, all(lines)); !slices.Equal(got, want) {
				t.Errorf("lines %q, want %q", got, want)
			}
		})
	}
}

// all returns what is in a closed channel.
func all(lines <-chan string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for line := range lines {
			if !yield(line) {
				return
			}
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	var got []string
	w := &lineWriter{take: func(line []byte) { got = append(got, string(line)) }}
	long := strings.Repeat("x", maxLine+10)
	for _, part := range []string{"a", "b\nc\n\nd", "\n", long, long, "\ne\nf"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	}
	if diff := cmp.Diff([]string{"ab", "c", "", "d", long[:maxLine], "e"}, got); diff != "" {
		t.Error(diff)
	}
}
