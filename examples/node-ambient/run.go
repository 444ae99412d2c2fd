// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/internal/footprint"
)

// gcPercent returns the settings of the garbage collector. This process lives long, and a look at
// all pods makes much garbage. While pods come, or the process takes up all pods after a restart,
// time matters more than memory. At 100 percent, though, what the process keeps is scattered so
// widely that it has half a MiB more when it is idle.
func gcPercent() footprint.Percent { return footprint.Percent{Working: 50, Idle: 30} }

// gcPause is longer than the agent works on a new pod after the plugin has its answer. The garbage
// of that work is collected then. Otherwise it would be collected while a plugin waits for the next
// pod, which would take a tenth longer.
const gcPause = 100 * time.Millisecond

func run(ctx context.Context, env environment) int {
	o, err := parse(env)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "node-ambient: %v\n", err)
		return exitUsage
	}
	if o.about {
		fmt.Fprintf(env.stdout, "node-ambient %s\n", env.version)
		return exitOK
	}
	log := slog.New(slog.NewJSONHandler(env.stderr, &slog.HandlerOptions{Level: o.level}))
	report := &reporter{to: env.stdout, log: log}
	defer report.flush()
	if env.trim != nil {
		report.memory = footprint.NewTrimmer(footprint.Options{
			Quiet: env.trimAfter, Trim: env.trim, Log: log, Percent: gcPercent(), Pause: gcPause, Collect: runtime.GC,
		})
		defer report.memory.Stop()
	}
	if err := serveInTurn(ctx, o, report, log); err != nil {
		log.Error("ended", "error", err)
		return exitFailure
	}
	return exitOK
}

// serveInTurn serves the node until the context ends or the work fails. While a newer process
// serves, it stands by, and it serves again when that one has ended. It does not end instead, to be
// started again by its parent: it would be the newer one then, and both would take turns.
func serveInTurn(ctx context.Context, o options, report *reporter, log *slog.Logger) error {
	started, err := sinceBoot()
	if err != nil {
		return fmt.Errorf("ask for the time since boot: %w", err)
	}
	for {
		err := serve(ctx, o, started, report, log)
		if !errors.Is(err, errSuperseded) {
			return err
		}
		log.Warn("stands by", "reason", err)
		report.standBy()
		if err := awaitFree(ctx, o); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the process is being stopped
			}
			return err
		}
		log.Info("serves again: the newer process has ended")
	}
}

// serve runs the agent, with its feed and the plugin's socket, until the context ends, one of them
// fails, or a newer process takes over. What takes time and writes nothing comes before the turn.
func serve(ctx context.Context, o options, started time.Duration, report *reporter, log *slog.Logger) (err error) {
	captures, err := newForm(ctx, o, report, log)
	if err != nil {
		return err
	}
	if captures.host != nil {
		defer func() { err = errors.Join(err, captures.host.Close()) }()
	}
	turn, err := awaitTurn(ctx, o, started, patience, log)
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the process is being stopped
		}
		return err
	}
	defer func() { err = errors.Join(err, turn.close()) }()
	return work(ctx, o, captures, turn, report, log)
}

// work is serve for a process that has the turn.
func work(ctx context.Context, o options, captures form, turn *turn, report *reporter, log *slog.Logger) error {
	logged := logFeed(ctx, log)
	pods := feed.NewClient(o.feed, feed.ClientOptions{Observe: func(e feed.Event) {
		logged(e)
		report.feed(e)
	}})
	node, err := captures.open(ctx, pods)
	if err != nil {
		return err
	}
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	plugin, err := event.Listen(ctx, o.events, event.Options{
		Enroller: enroller{node.plugin}, Leaver: enroller{node.plugin}, Keeper: keeper{node.operators, node.inside, pods, report.hostError},
		HandOver: turn.handOver(end), HostRoot: o.hostRoot,
		Observe: func(outcome event.Outcome) {
			log.Log(ctx, levelOf(outcome.Err), "request at the event socket", "path", outcome.Path, "pod", outcome.Pod.String(),
				"decision", outcome.Decision.String(), "error", outcome.Err, "duration", outcome.Duration.String())
			report.request(outcome)
		},
	})
	if err != nil {
		end(err) // the agent closes what it has opened
	} else {
		report.begin(o.settings.OnNode())
	}
	var group sync.WaitGroup
	group.Go(func() { pods.Run(working) })
	group.Go(func() { end(node.run(working)) })
	if plugin != nil {
		group.Go(func() { end(plugin.Serve(working)) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil // the process is being stopped
	}
	return context.Cause(working)
}

// logFeed returns a log of the feed's events. While the source is away, every attempt to connect
// fails: what has failed for the same reason before is logged at debug level.
func logFeed(ctx context.Context, log *slog.Logger) func(feed.Event) {
	var mu sync.Mutex
	var last string
	return func(e feed.Event) {
		level := levelOf(e.Err)
		if e.UID == "" {
			mu.Lock()
			now := fmt.Sprint(e.Kind, e.Err)
			if now == last {
				level = slog.LevelDebug
			}
			last = now
			mu.Unlock()
		}
		log.Log(ctx, level, "feed of pods", "event", e.Kind, "pod", e.UID, "error", e.Err)
	}
}

func levelOf(err error) slog.Level {
	if err != nil {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
