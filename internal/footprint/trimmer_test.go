// SPDX-License-Identifier: Apache-2.0

package footprint_test

import (
	"log/slog"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshcni/meshcni/internal/footprint"
)

// gcPercent returns the setting of this process's garbage collector.
func gcPercent() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestTrimmer has waves of work on the test's own clock: the function is called once after each
// wave, never during one, and not again without work. The garbage collector is set to save time in
// waves, and to save memory between them.
func TestTrimmer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const quiet = 10 * time.Second
		trims := make(chan time.Time, 100)
		trimmer := footprint.NewTrimmer(footprint.Options{
			Quiet: quiet, Percent: footprint.Percent{Working: 90, Idle: 40}, Log: slog.New(slog.DiscardHandler),
			Trim: func() error {
				trims <- time.Now()
				return nil
			},
		})
		defer trimmer.Stop()
		last := time.Now()
		expect := func(what string) {
			t.Helper()
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			if len(trims) != 1 {
				t.Fatalf("%s: %d trims within a day", what, len(trims))
			}
			if got := gcPercent(); got != 40 {
				t.Errorf("%s: the garbage collector's setting is %d when idle", what, got)
			}
			if at := <-trims; !at.Equal(last.Add(quiet)) {
				t.Errorf("%s: trimmed %v after the last work, want %v", what, at.Sub(last), quiet)
			}
		}
		expect("start")
		for range 3 {
			for range 1000 {
				last = time.Now()
				trimmer.Worked()
				time.Sleep(quiet - time.Millisecond)
			}
			synctest.Wait()
			if len(trims) != 0 {
				t.Fatal("trimmed during a wave")
			}
			if got := gcPercent(); got != 90 {
				t.Errorf("the garbage collector's setting is %d during a wave", got)
			}
			expect("wave")
		}
		trimmer.Worked()
		trimmer.Stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(trims) != 0 {
			t.Error("trimmed after Stop")
		}
	})
}

// TestCollect has pieces of work on the test's own clock: garbage is collected once after each, as
// soon as the process rests, and not again without work.
func TestCollect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const quiet, pause = 10 * time.Second, 100 * time.Millisecond
		collections := make(chan time.Time, 100)
		trimmer := footprint.NewTrimmer(footprint.Options{
			Quiet: quiet, Trim: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
			Pause: pause, Collect: func() { collections <- time.Now() },
		})
		defer trimmer.Stop()
		last := time.Now()
		for _, what := range []string{"start", "work", "more work"} {
			time.Sleep(time.Hour)
			synctest.Wait()
			if len(collections) != 1 {
				t.Fatalf("%s: %d collections within an hour", what, len(collections))
			}
			if at := <-collections; !at.Equal(last.Add(pause)) {
				t.Errorf("%s: collected %v after the last work, want %v", what, at.Sub(last), pause)
			}
			for range 100 {
				last = time.Now()
				trimmer.Worked()
				time.Sleep(pause - time.Millisecond)
			}
			synctest.Wait()
			if len(collections) != 0 {
				t.Fatalf("%s: collected while the process works", what)
			}
		}
		trimmer.Stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(collections) != 0 {
			t.Error("collected after Stop")
		}
	})
}
