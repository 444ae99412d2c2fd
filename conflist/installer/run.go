// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/meshcni/meshcni/internal/upkeep"
)

// checkInterval is how often Run looks although nothing has changed.
const checkInterval = 10 * time.Minute

// Run keeps the node right until the context ends. It removes nothing then: the next version takes
// over. The error is why Run could not begin: an uninstall was under way until the context ended,
// or BinDir cannot be opened. Later failures are reported to OnEvent, and tried again.
func (i *Installer) Run(ctx context.Context) error {
	release, err := i.Attend(ctx)
	if err != nil {
		return err
	}
	defer release()
	parts := i.Parts()
	tasks := make([]upkeep.Task, 0, len(parts))
	for _, part := range parts {
		tasks = append(tasks, &task{Part: part, emit: i.options.emit})
	}
	unwatched := ""
	upkeep.New(upkeep.Options{
		Interval: checkInterval,
		Now:      i.options.Now,
		Unwatched: func(err error) {
			if err != nil && err.Error() != unwatched {
				i.options.emit(Failure, "cannot watch for changes; looking from time to time instead", "error", err)
			}
			unwatched = text(err)
		},
		Lost: func(err error) { i.options.emit(Warning, "events were lost; looking at everything", "error", err) },
	}, tasks...).Run(ctx)
	return nil
}

type task struct {
	Part
	emit func(Weight, string, ...any)
	said string // the last failure reported
}

func (t *task) Pace() upkeep.Bucket { return upkeep.PaceOf(t.Part) }

func (t *task) Pass(ctx context.Context) upkeep.Result {
	result, err := t.Ensure(ctx)
	pass := upkeep.Result{Err: err, Outcome: map[Result]upkeep.Outcome{
		Right: upkeep.Right, Wrote: upkeep.Wrote, Restored: upkeep.Restored, Overtaken: upkeep.Overtaken,
	}[result]}
	var later interface{ Again() time.Time }
	if errors.As(err, &later) {
		pass.Again = later.Again()
	}
	switch {
	case errors.Is(err, ErrSuperseded), errors.Is(err, ErrWaiting), ctx.Err() != nil:
		pass.Outcome = upkeep.Waiting
	case err != nil:
		pass.Outcome = upkeep.Failed
	}
	return pass
}

func (t *task) Observe(result upkeep.Result, pace upkeep.Pace) {
	if said := text(result.Err); said != t.said {
		t.said = said
		switch {
		case errors.Is(result.Err, ErrSuperseded): // the claim has reported it
		case result.Outcome == upkeep.Waiting && result.Err != nil:
			t.emit(Warning, "waiting", "part", t.Name(), "reason", result.Err)
		case result.Outcome == upkeep.Failed:
			t.emit(Failure, "failed; trying again until it works", "part", t.Name(), "error", result.Err)
		}
	}
	switch pace.Fight {
	case upkeep.NoNews, upkeep.FightGoesOn:
	case upkeep.FightBegan:
		t.emit(Warning, "another program keeps changing what this one installs; find it, and have it leave our files and entry alone",
			"part", t.Name(), "restores", pace.Count, "pause", pace.Pause)
	case upkeep.FightOver:
		t.emit(News, "no other program has changed what this one installs for a minute", "part", t.Name())
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// mostPasses bounds how often Install looks again after it changed something.
const mostPasses = 10

// Install does once what Run does continuously, and returns. It does not wait for what other
// programs have to provide: the error wraps [ErrWaiting] then.
func (i *Installer) Install(ctx context.Context) error {
	release, err := i.Attend(ctx)
	if err != nil {
		return err
	}
	defer release()
	parts := i.Parts()
	for range mostPasses {
		again := false
		for _, part := range parts {
			result, err := part.Ensure(ctx)
			switch {
			case errors.Is(err, ErrWaiting):
				return err
			case err != nil:
				return fmt.Errorf("%s: %w", part.Name(), err)
			}
			again = again || result != Right
		}
		if !again {
			return nil
		}
	}
	return errors.New("another program keeps changing the same files; find out which")
}
