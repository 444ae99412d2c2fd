// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/examples/node-watcher/internal/answers"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// sayWithin is how old the last report of repair may be: if many pods change, not each of them is
// worth a line.
const sayWithin = time.Second

// repairer handles the pods that are not captured.
type repairer struct {
	*controller.Controller
	log     *slog.Logger
	say     func(line any)
	changed chan struct{}
	allowed *permissions
}

// newRepairer parses the daemon's configuration.
func newRepairer(text string, known *answers.Pods, o options, version string, log *slog.Logger, say func(line any)) (*repairer, error) {
	var config repairconf.Config
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return nil, fmt.Errorf("-repair: %w", err)
	}
	selection, err := controller.ParseSelection(config.LabelSelector, config.FieldSelector)
	if err != nil {
		return nil, fmt.Errorf("repair-label-selectors or repair-field-selectors: %w", err)
	}
	criteria := config.Criteria(o.node, version)
	pods, err := namespaces(config, version, log)
	if err != nil {
		return nil, err
	}
	r := &repairer{log: log, say: say, changed: make(chan struct{}, 1), allowed: &permissions{Cluster: known.Client()}}
	r.Controller, err = controller.New(controller.Options{
		Cluster: r.allowed, Informer: known.Informer(), Select: selection, Namespaces: pods, Criteria: criteria,
		Policy: config.Policy, Limits: config.Limits, Resync: config.Resync, ActAtStart: config.ActAtStart,
		OnOutcome: r.logOutcome, OnStatus: r.isChanged,
	})
	return r, err
}

// logOutcome logs the outcome for a pod.
func (r *repairer) logOutcome(o controller.Outcome) {
	level, message := slog.LevelInfo, "a pod is not captured as it was meant to be"
	switch {
	case o.Finding.Verdict == repair.Suspect, o.Finding.Verdict == repair.Unknown:
		message = "a pod may not be captured as it was meant to be"
	case o.Action.Do == repair.ModeNothing:
		message = "a pod can't be looked at"
	}
	switch {
	case o.Finding.Verdict == repair.Outdated:
		level = slog.LevelDebug
	case o.Result == controller.ResultFail:
		level = slog.LevelWarn
	}
	attributes := []any{"pod", o.Finding.Of.String(), "finding", o.Finding.String(), "action", string(o.Action.Do), "result", string(o.Result)}
	for _, skipped := range o.Action.Skipped {
		attributes = append(attributes, "not_"+string(skipped.Mode), skipped.Why)
	}
	for key, err := range map[string]error{"error": o.Err, "unseen": o.Unseen, "untold": o.EventErr} {
		if err != nil {
			attributes = append(attributes, key, err.Error())
		}
	}
	r.log.Log(context.Background(), level, message, attributes...)
}

func (r *repairer) isChanged() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// run handles pods until ctx ends, and reports the state of repair.
func (r *repairer) run(ctx context.Context) error {
	go r.announce(ctx)
	return r.Run(ctx)
}

// announce reports the state of repair, whenever it has changed.
func (r *repairer) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		}
		status := r.Status()
		said := repairconf.Status{
			Scanned: status.Scanned, Pods: status.Pods, Waiting: status.Waiting, Unseen: status.Unseen, EventsFailed: status.EventsFailed,
			Forbidden: r.allowed.missing(),
		}
		for kind, times := range status.Done {
			said.Done = append(said.Done, repairconf.Count{Mode: kind.Mode, Result: string(kind.Result), Times: times})
		}
		slices.SortFunc(said.Done, func(a, b repairconf.Count) int {
			return cmp.Or(cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Result, b.Result))
		})
		r.say(repairconf.Line{Repair: &said})
		select {
		case <-ctx.Done():
			return
		case <-time.After(sayWithin):
		}
	}
}

// permissions is a controller's connection to the API server that remembers what its role lacks.
type permissions struct {
	controller.Cluster

	mu        sync.Mutex
	forbidden map[string]string
}

func (p *permissions) Do(ctx context.Context, action repair.Action) error {
	err := p.Cluster.Do(ctx, action)
	p.note(string(action.Do), err)
	return err
}

func (p *permissions) CreateEvent(ctx context.Context, event controller.Event) error {
	err := p.Cluster.CreateEvent(ctx, event)
	p.note(repairconf.Telling, err)
	return err
}

// note remembers an answer of the API server: what is forbidden stays so until it succeeds. Only
// the first refusal is kept, so that not each pod causes news.
func (p *permissions) note(what string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		delete(p.forbidden, what)
	case apierrors.IsForbidden(err) && p.forbidden[what] == "":
		if p.forbidden == nil {
			p.forbidden = map[string]string{}
		}
		p.forbidden[what] = err.Error()
	}
}

// missing returns what is forbidden, for a [repairconf.Status].
func (p *permissions) missing() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.forbidden)
}
