// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/internal/nodepods"
)

// Options are what a [Controller] works with. Required are Config, Pods and Annotation.
type Options struct {
	// Config configures the connection to the API server. Its content settings are replaced. With
	// its default QPS and Burst, the annotations of a hundred pods take 18 s.
	Config *rest.Config
	// Pods knows the node's pods, as [NewInformer] or the client of package repair/controller makes
	// it. The caller runs it.
	Pods cache.SharedIndexInformer
	// Annotation is the name of the status annotation, such as that of [ambient.Vocabulary].
	Annotation string
	// Policy names the node's proxy. It may be the zero value: then no pod counts as the proxy.
	Policy ambient.Policy
	// Timeout bounds each request that is no watch; 5 s if zero.
	Timeout time.Duration
	// OnError receives why namespaces cannot be read, each time; they are tried again. It may be
	// nil. Several goroutines call it, and it should return quickly.
	OnError func(error)
}

// ErrOptions is wrapped by the error about options that are missing or invalid.
var ErrOptions = errors.New("invalid options of an ambient controller")

func (o Options) validate() error {
	var errs []error
	for _, need := range []struct {
		given bool
		name  string
	}{
		{o.Config != nil, "Config is needed, such as that of rest.InClusterConfig"},
		{o.Pods != nil, "Pods is needed"},
		{o.Annotation != "", "Annotation is needed"},
		{o.Timeout >= 0, "Timeout isn't negative"},
	} {
		if !need.given {
			errs = append(errs, errors.New(need.name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	return o
}

// NewInformer returns an informer of a node's pods that keeps only what decides about them. Of a
// pod that is too large to be kept, it keeps the labels and annotations that keep names ([Names]).
// It never resyncs by itself. Without the node's name or a configuration, the error wraps
// [ErrOptions].
func NewInformer(config *rest.Config, node string, keep ...string) (cache.SharedIndexInformer, error) {
	if config == nil || node == "" {
		return nil, fmt.Errorf("%w: an informer needs a configuration and the node's name", ErrOptions)
	}
	client, err := nodepods.NewClient(config)
	if err != nil {
		return nil, err
	}
	return nodepods.NewInformer(client, nodepods.Selection{Node: node, Keep: keep})
}

// Names returns the names of all labels and annotations of pods that the policy and the vocabulary
// read, sorted.
func Names(policy ambient.Policy, vocabulary ambient.Vocabulary) []string {
	var names []string
	add := func(name string) {
		if name != "" {
			names = append(names, name)
		}
	}
	for _, selector := range policy.Selectors {
		for key := range selector.Pod.MatchLabels {
			add(key)
		}
		for _, requirement := range selector.Pod.MatchExpressions {
			add(requirement.Key)
		}
	}
	for key := range policy.ProxyLabels {
		add(key)
	}
	for _, field := range vocabulary.Fields {
		add(field.Key)
	}
	add(policy.SidecarAnnotation)
	add(vocabulary.Status)
	slices.Sort(names)
	return slices.Compact(names)
}
