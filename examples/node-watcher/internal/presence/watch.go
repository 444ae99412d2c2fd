// SPDX-License-Identifier: Apache-2.0

package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/internal/nodepods"
)

// Options configure which ConfigMap is watched, and who receives reports. All fields must be set.
type Options struct {
	// Config configures the connection to the API server. Its content settings are replaced.
	Config *rest.Config
	// Object is the ConfigMap, as namespace/name.
	Object string
	Log    *slog.Logger
	// Observe receives whether the object exists: at first, and whenever that changes. It is not
	// called concurrently.
	Observe func(there bool)
}

// Watch watches a ConfigMap. Create it with [New].
type Watch struct {
	options         Options
	namespace, name string
	client          rest.Interface

	mu    sync.Mutex
	known *bool  // the last report
	wrong string // the last failure that was logged; empty after a success
}

// New returns a watch, and sends no request yet. The error is about the options.
func New(o Options) (*Watch, error) {
	namespace, name, found := strings.Cut(o.Object, "/")
	if !found || namespace == "" || name == "" {
		return nil, fmt.Errorf("object %q: it should be namespace/name", o.Object)
	}
	client, err := nodepods.NewClient(o.Config)
	if err != nil {
		return nil, err
	}
	return &Watch{options: o, namespace: namespace, name: name, client: client}, nil
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &metav1.PartialObjectMetadataList{}
			err := w.request(o, "PartialObjectMetadataList").Do(ctx).Into(list)
			return list, w.asked(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			events, err := w.request(o, "PartialObjectMetadata").Watch(ctx)
			return events, w.asked(ctx, err)
		},
	}, &metav1.PartialObjectMetadata{}, store{w}, cache.ReflectorOptions{Name: w.options.Object}).RunWithContext(ctx)
}

// request selects the object, and requests metadata in a form of meta/v1.
func (w *Watch) request(o metav1.ListOptions, form string) *rest.Request {
	o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
	return w.client.Get().Namespace(w.namespace).Resource("configmaps").
		SetHeader("Accept", "application/json;as="+form+";g=meta.k8s.io;v=v1").
		VersionedParams(&o, metav1.ParameterCodec)
}

// asked logs a failure if it differs from the last one. An API server that does not stream lists,
// the default before 1.34, has not failed: the reflector lists at once.
func (w *Watch) asked(ctx context.Context, err error) error {
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "sendInitialEvents") {
		return err
	}
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	w.mu.Lock()
	before := w.wrong
	w.wrong = wrong
	w.mu.Unlock()
	if wrong != "" && wrong != before && ctx.Err() == nil {
		w.options.Log.Warn(
			"the API server doesn't say whether the installation still exists; the plugin may stay on the node after the installation has ended",
			"configMap", w.options.Object, "error", err)
	}
	return err
}

// report passes on whether the object is there, if that has changed.
func (w *Watch) report(there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil || *w.known != there {
		w.known = &there
		w.options.Observe(there)
	}
}

// store receives the reflector's reports.
type store struct{ *Watch }

var errForeign = errors.New("the API server's answer is about another object")

func (s store) Add(object any) error    { return s.about(object, true) }
func (s store) Update(object any) error { return s.about(object, true) }
func (s store) Delete(object any) error { return s.about(object, false) }

func (s store) about(object any, there bool) error {
	if o, ok := object.(*metav1.PartialObjectMetadata); !ok || o.Name != s.name || o.Namespace != s.namespace {
		return errForeign
	}
	s.report(there)
	return nil
}

func (s store) Replace(all []any, _ string) error {
	for _, object := range all {
		if err := s.Add(object); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		s.report(false)
	}
	return nil
}

func (s store) Resync() error { return nil }
