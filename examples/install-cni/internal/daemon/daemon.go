// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/installer"
	"github.com/meshcni/meshcni/internal/backoff"
	"github.com/meshcni/meshcni/internal/watch"
)

// A Part keeps one thing on the node right.
type Part interface {
	// Name identifies the part in logs and in /readyz.
	Name() string
	// Directories are to be watched for this part.
	Directories() []string
	// Concerns reports whether a change of the file at path, in one of the directories, may matter.
	Concerns(path string) bool
	// Ensure compares and, where something differs, writes; changed says so. An error that wraps [installer.ErrWaiting] or
	// [installer.ErrSuperseded] asks to be called again only when something changed, or at the time that an Again method of it says.
	Ensure(ctx context.Context) (changed bool, err error)
}

// Daemon runs parts. Make it with [New].
type Daemon struct {
	parts   []*part
	watches *watch.Watches
	state   *health.State
	log     *slog.Logger
	checkAt time.Time // when everything is looked at, whatever happens
}

// part is a Part and when to run it.
type part struct {
	Part
	due      bool
	settled  bool      // has once had nothing to do
	pausedTo time.Time // after restores that followed each other too fast
	retryAt  time.Time // after a failure
	againAt  time.Time // when to look although nothing has changed; zero: never
	fights   backoff.Series
	failures backoff.Series
}

// New returns a daemon for the parts, in the order in which they depend on each other. It tells the state how they are.
func New(state *health.State, log *slog.Logger, parts ...Part) *Daemon {
	d := &Daemon{state: state, log: log}
	for _, p := range parts {
		d.parts = append(d.parts, &part{Part: p, due: true, fights: backoff.Fights(), failures: backoff.Failures()})
		state.Set(p.Name(), "starting")
	}
	d.watches = watch.New()
	state.Set("watch", "starting")
	return d
}

// checkInterval is how often everything is looked at although nothing has changed: rare enough to cost nothing.
const checkInterval = 10 * time.Minute

// Run keeps the parts right until the context ends, which is its only way to end.
func (d *Daemon) Run(ctx context.Context) {
	defer d.watches.Close()
	d.checkAt = time.Now().Add(checkInterval)
	for ctx.Err() == nil {
		d.watch()
		for _, p := range d.parts {
			if p.due && !p.next().After(time.Now()) && ctx.Err() == nil {
				d.run(ctx, p)
			}
		}
		d.wait(ctx)
	}
}

// watch puts watches where they are missing. Everything is looked at whenever one was missing: there have been no events of it.
func (d *Daemon) watch() {
	var directories []string
	for _, p := range d.parts {
		directories = append(directories, p.Directories()...)
	}
	d.watches.Set(directories...)
	missed, err := d.watches.Ensure(time.Now())
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if d.state.Set("watch", reason) && err != nil {
		d.log.Error("cannot watch for changes; looking from time to time instead", "error", err)
	}
	for _, p := range d.parts {
		if missed {
			p.due, p.retryAt = true, time.Time{}
		}
	}
}

// run lets one part work and draws the conclusions.
func (d *Daemon) run(ctx context.Context, p *part) {
	p.due, p.retryAt, p.againAt = false, time.Time{}, time.Time{}
	changed, err := p.Ensure(ctx)
	now := time.Now()
	var later interface{ Again() time.Time }
	if errors.As(err, &later) {
		p.againAt = later.Again()
	}
	switch {
	case errors.Is(err, installer.ErrSuperseded): // the claim has said so
		p.failures.Reset()
		d.state.Set(p.Name(), err.Error())
	case errors.Is(err, installer.ErrWaiting):
		p.failures.Reset()
		if d.state.Set(p.Name(), err.Error()) {
			d.log.Warn("waiting", "part", p.Name(), "reason", err)
		}
	case err != nil:
		p.due, p.retryAt = true, now.Add(p.failures.Next(now))
		if d.state.Set(p.Name(), err.Error()) {
			d.log.Error("failed; trying again until it works", "part", p.Name(), "error", err)
		}
	case changed:
		p.failures.Reset()
		d.wrote(p, now)
	default:
		p.failures.Reset()
		if !p.settled { // what the first installation took is no fight
			p.fights.Reset()
		}
		p.settled = true
		d.state.Set(p.Name(), "")
	}
}

// wrote has the part look at its own work, and the parts after it, which may have waited for it; at once, unless this is a fight.
func (d *Daemon) wrote(p *part, now time.Time) {
	p.due = true
	d.watches.Soon() // a directory may be there now
	for _, later := range d.parts[slices.Index(d.parts, p)+1:] {
		later.due, later.retryAt = true, time.Time{}
	}
	if pause := p.fights.Next(now); pause > 0 {
		p.pausedTo = now.Add(pause)
		if d.state.Set(p.Name(), "another program keeps changing what this one installs; looking again after a pause") {
			d.log.Warn("another program keeps changing what this one installs; find it, and have it leave our files and entry alone"+
				" (Cilium: cni.exclusive=false; another install-cni: run one only)", "part", p.Name(), "restores", p.fights.Count(), "pause", pause)
		}
	}
}

// wait returns when a part should run: something changed, or a pause is over.
func (d *Daemon) wait(ctx context.Context) {
	var wake <-chan time.Time
	if at, ok := d.earliest(); ok {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		wake = timer.C
	}
	select {
	case <-ctx.Done():
	case <-wake:
		d.look(time.Now())
	case event := <-d.watches.Events():
		d.note(event)
	case err := <-d.watches.Errors():
		d.lost(err)
	}
	for { // whatever has come with it
		select {
		case event := <-d.watches.Events():
			d.note(event)
		case err := <-d.watches.Errors():
			d.lost(err)
		default:
			return
		}
	}
}

// look marks the parts whose time has come.
func (d *Daemon) look(now time.Time) {
	all := !d.checkAt.After(now)
	if all {
		d.checkAt = now.Add(checkInterval)
	}
	for _, p := range d.parts {
		p.due = p.due || all || (!p.againAt.IsZero() && !p.againAt.After(now))
	}
}

// earliest is when the first part that is due may run, or the watches should be tried again.
func (d *Daemon) earliest() (at time.Time, ok bool) {
	at, ok = d.watches.Retry()
	consider := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	consider(d.checkAt)
	for _, p := range d.parts {
		consider(p.againAt)
		if p.due && (!ok || p.next().Before(at)) {
			at, ok = p.next(), true
		}
	}
	return at, ok
}

// next is when a part that is due may run.
func (p *part) next() time.Time {
	if p.retryAt.After(p.pausedTo) {
		return p.retryAt
	}
	return p.pausedTo
}

// note marks the parts that an event concerns. A failure isn't waited out then: its reason may just have gone.
func (d *Daemon) note(event fsnotify.Event) {
	for _, p := range d.parts {
		if p.Concerns(event.Name) || slices.Contains(p.Directories(), event.Name) {
			d.log.Debug("changed", "path", event.Name, "how", event.Op.String(), "part", p.Name())
			p.due, p.retryAt = true, time.Time{}
		}
	}
}

// lost has everything looked at: events are missing.
func (d *Daemon) lost(err error) {
	d.log.Warn("events were lost; looking at everything", "error", err)
	for _, p := range d.parts {
		p.due, p.retryAt = true, time.Time{}
	}
}
