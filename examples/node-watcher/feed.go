// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/ambient/controller"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/examples/internal/contact"
	"github.com/meshcni/meshcni/examples/node-watcher/internal/answers"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/footprint"
)

// Rates of the requests for ambient mode: all pods of a full node are annotated within seconds, as
// they are when ambient mode is switched on for their namespaces.
const (
	annotationsPerSecond = 50
	annotationsAtOnce    = 100
)

// namespacesPath is where all namespaces are listed and watched.
const namespacesPath = "/api/v1/namespaces"

// feeder serves the feed of ambient mode: it tells agents of the node's pods and their namespaces,
// and writes the pods' status annotations.
type feeder struct {
	controller *controller.Controller
	server     *feed.Server
}

// namesToKeep returns which labels and annotations ambient mode reads of a pod that is too large to
// be kept. Without a feed there are none.
func namesToKeep(o options) ([]string, error) {
	if o.feed == "" {
		return nil, nil
	}
	policy, err := policyOf(o)
	if err != nil {
		return nil, err
	}
	return controller.Names(policy, ambient.Istio()), nil
}

// policyOf returns which pods are in ambient mode, and which is the proxy.
func policyOf(o options) (ambient.Policy, error) {
	config, err := ambientconf.Parse(o.ambient)
	if err != nil {
		return ambient.Policy{}, fmt.Errorf("-ambient: %w", err)
	}
	policy, err := config.Policy()
	if err != nil {
		return ambient.Policy{}, fmt.Errorf("-ambient: %w", err)
	}
	return policy, nil
}

// newFeeder listens for agents.
func newFeeder(ctx context.Context, of *answers.Pods, o options, version string, memory *footprint.Trimmer, log *slog.Logger) (*feeder, error) {
	reached := contact.New(contact.Options{Path: namespacesPath, Now: time.Now, OnChange: func(kind string, err error) {
		if err == nil {
			log.Info("the API server answers about namespaces again", "server", o.server.URL)
			return
		}
		log.Warn("the API server doesn't answer about namespaces; trying again", "server", o.server.URL, "failure", kind, "error", err)
	}})
	policy, err := policyOf(o)
	if err != nil {
		return nil, err
	}
	config := o.server.Config(version)
	config.Wrap(reached.Wrap)
	config.QPS, config.Burst = annotationsPerSecond, annotationsAtOnce
	c, err := controller.New(controller.Options{
		Config: config, Pods: of.Informer(), Annotation: ambient.Istio().Status, Policy: policy,
		OnError: func(err error) { log.Debug("can't read namespaces", "error", err) }, // reached has warned
	})
	if err != nil {
		return nil, err
	}
	server, err := feed.Listen(ctx, o.feed, feed.ServerOptions{
		Source: c, Annotator: &annotator{next: c, log: log, memory: memory}, Observe: logFeed(ctx, log),
	})
	if err != nil {
		return nil, fmt.Errorf("-feed: %w", err)
	}
	return &feeder{c, server}, nil
}

// run feeds agents until ctx ends, or only a restart can help.
func (f *feeder) run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group sync.WaitGroup
	group.Go(func() { end(f.controller.Run(ctx)) })
	group.Go(func() { end(f.server.Serve(ctx)) })
	group.Wait()
	return context.Cause(ctx)
}

// annotator writes annotations, and logs the first failure of several in a row.
type annotator struct {
	next   feed.Annotator
	log    *slog.Logger
	memory *footprint.Trimmer

	mu     sync.Mutex
	failed bool // the last one that the API server could have written
}

// Annotate implements [feed.Annotator].
func (a *annotator) Annotate(ctx context.Context, pod interception.Pod, status ambient.Status) error {
	a.memory.Worked()
	err := a.next.Annotate(ctx, pod, status)
	if errors.Is(err, feed.ErrPodGone) || errors.Is(ctx.Err(), context.Canceled) { // the pod or the agent is gone
		return err
	}
	a.mu.Lock()
	before := a.failed
	a.failed = err != nil
	a.mu.Unlock()
	switch {
	case err != nil && !before:
		a.log.Warn("a pod's status isn't annotated; trying again", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	case err != nil:
		a.log.Debug("a pod's status isn't annotated", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	case before:
		a.log.Info("pods' statuses are annotated again")
	}
	return err
}

// logFeed returns a log of the feed's events. An event that repeats the last one, such as the end
// of each connection of an agent that may not connect, is logged at debug level. What is not
// annotated is logged by [annotator].
func logFeed(ctx context.Context, log *slog.Logger) func(feed.Event) {
	var mu sync.Mutex
	var last string
	return func(e feed.Event) {
		level := slog.LevelInfo
		mu.Lock()
		now := fmt.Sprint(e.Kind, e.UID, e.Err)
		switch {
		case e.Kind == feed.NotAnnotated, now == last:
			level = slog.LevelDebug
		case e.Kind == feed.NotTold:
			level = slog.LevelWarn
		}
		if e.Kind != feed.NotAnnotated {
			last = now
		}
		mu.Unlock()
		attributes := []any{"event", string(e.Kind), "connection", e.Connection}
		if e.UID != "" {
			attributes = append(attributes, "pod", e.UID)
		}
		if e.Err != nil {
			attributes = append(attributes, "error", e.Err)
		}
		log.Log(ctx, level, "feed of pods", attributes...)
	}
}
