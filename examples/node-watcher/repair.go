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
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
	"github.com/meshcni/meshcni/repair/inplace"
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

// namespaces returns access to those of the node's pods. If the daemon does not configure how to
// find them, it reads only the plugin's records.
func namespaces(c repairconf.Config, version string, log *slog.Logger) (controller.Namespaces, error) {
	roots := podnetns.Roots{Results: c.Results, Journal: c.Journal}
	if c.InPlace == nil {
		records, err := podnetns.NewRecords(roots)
		return inplace.Records{Records: records}, err
	}
	roots.Proc, roots.Netns = c.InPlace.Proc, c.InPlace.Netns
	finder, err := podnetns.NewFinder(roots)
	if err != nil {
		return nil, err
	}
	all, err := dataplanes(c.InPlace.Dataplane)
	if err != nil {
		return nil, fmt.Errorf("look into network namespaces: %w", err)
	}
	mesh := c.Mesh()
	return inplace.NewRepairer(inplace.Options{
		Finder: finder, Dataplanes: all, Mesh: mesh, Owner: mesh.Owner, Planner: version,
		Plan: func(pod interception.Pod, facts interception.Facts) (*interception.Plan, error) {
			planned, err := mesh.Plan(pod, facts) // its warnings were reported when the pod was created
			return planned.Plan, err
		},
		OnWarning: func(of repair.Target, err error) {
			log.Warn("a repaired pod needs attention", "pod", of.String(), "error", err)
		},
	})
}

// dataplanes returns all dataplanes that may have applied a pod's rules. The plugin's setting comes
// first.
func dataplanes(setting string) ([]choice.Candidate, error) {
	all, err := standard.Candidates(nftables.Options{Foreign: true}, iptables.Options{Foreign: true, Nsenter: []string{"nsenter"}})
	return preferring(setting, all), err
}

// preferring moves the dataplane of a setting to the front. The others stay: pods may have rules of
// theirs.
func preferring(setting string, all []choice.Candidate) []choice.Candidate {
	if i := slices.IndexFunc(all, func(c choice.Candidate) bool { return c.Name == setting }); i > 0 {
		return slices.Concat(all[i:i+1], all[:i], all[i+1:])
	}
	return all
}
