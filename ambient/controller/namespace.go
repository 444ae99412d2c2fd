// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/internal/nodepods"
)

// connect makes the client and the informer of namespaces.
func (c *Controller) connect() error {
	client, err := nodepods.NewClient(c.options.Config)
	if err != nil {
		return err
	}
	c.rest = client
	c.namespaces = nodepods.NewSteadyInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &metav1.PartialObjectMetadataList{}
			return list, c.ask(o, "PartialObjectMetadataList").Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			events, err := c.ask(o, "PartialObjectMetadata").Watch(ctx)
			if err == nil {
				c.answered()
			}
			return events, err
		},
	}, &metav1.PartialObjectMetadata{}, strip)
	if err := c.namespaces.SetWatchErrorHandlerWithContext(c.failed); err != nil {
		return fmt.Errorf("make an informer of namespaces: %w", err)
	}
	return nil
}

// ask returns a request for namespaces, in a form of meta/v1.
func (c *Controller) ask(o metav1.ListOptions, form string) *rest.Request {
	return c.rest.Get().Resource("namespaces").SetHeader("Accept", "application/json;as="+form+";g=meta.k8s.io;v=v1").
		VersionedParams(&o, metav1.ParameterCodec)
}

// strip keeps the name and the labels of a namespace.
func strip(object any) (any, error) {
	o, isNamespace := object.(*metav1.PartialObjectMetadata)
	if !isNamespace {
		return object, nil // one whose deletion was missed
	}
	return &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, ResourceVersion: o.ResourceVersion, Labels: o.Labels},
	}, nil
}

// failed reports why the informer cannot list or watch namespaces. It goes on by itself.
func (c *Controller) failed(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return // the usual ends of a watch
	}
	c.options.OnError(fmt.Errorf("list and watch namespaces: %w", permission("list and watch", "namespaces", err)))
}

func sameNamespace(before, after any) bool {
	a, isOne := before.(*metav1.PartialObjectMetadata)
	b, isTwo := after.(*metav1.PartialObjectMetadata)
	return isOne && isTwo && maps.Equal(a.Labels, b.Labels)
}

// namespaceChanged notes that a namespace is new or has other labels.
func (c *Controller) namespaceChanged(object any) {
	o, isNamespace := object.(*metav1.PartialObjectMetadata)
	if !isNamespace {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news != nil {
		c.news.addNamespace(o.Name)
		signal(c.woken)
	}
}

// namespace returns a namespace, if it is known. Otherwise it has it looked up. The caller holds
// mu.
func (c *Controller) namespace(name string) (namespace ambient.Namespace, known bool) {
	if object, found, err := c.namespaces.GetStore().GetByKey(name); err == nil && found {
		if o, isNamespace := object.(*metav1.PartialObjectMetadata); isNamespace {
			return ambient.Namespace{Name: name, Labels: o.Labels}, true
		}
	}
	lookup, asked := c.lookups[name]
	if !asked {
		c.lookups[name] = nil
		signal(c.asked)
	}
	if lookup == nil {
		return ambient.Namespace{}, false
	}
	return *lookup, true
}

// lookUp asks the API server for namespaces that the informer does not know, until ctx ends.
func (c *Controller) lookUp(ctx context.Context) {
	pause := pauses()
	for ctx.Err() == nil {
		name, waits := c.nextLookup()
		if !waits {
			select {
			case <-c.asked:
			case <-ctx.Done():
			}
			continue
		}
		answers := c.nextAnswer()
		namespace, err := c.read(ctx, name)
		if err != nil && ctx.Err() == nil {
			c.options.OnError(err)
			_ = sleep(ctx, pause.Step(), answers, err) // the end of ctx ends the loop
			continue
		}
		pause = pauses()
		c.mu.Lock()
		if _, waits := c.lookups[name]; waits {
			c.lookups[name] = &namespace
		}
		c.mu.Unlock()
		signal(c.woken)
	}
}

func (c *Controller) nextLookup() (name string, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, lookup := range c.lookups {
		if lookup == nil {
			return name, true
		}
	}
	return "", false
}

// read reads a namespace as it is now. One that does not exist has no labels: a namespace that was
// removed by force may leave pods. Reading is a list of one: the role has the verb anyway.
func (c *Controller) read(ctx context.Context, name string) (ambient.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	selected := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	if err := c.ask(selected, "PartialObjectMetadataList").MaxRetries(0).Do(ctx).Into(list); err != nil {
		return ambient.Namespace{}, fmt.Errorf("read namespace %s: %w", name, permission("list", "namespaces", err))
	}
	namespace := ambient.Namespace{Name: name}
	for _, o := range list.Items {
		if o.Name == name {
			namespace.Labels = o.Labels
		}
	}
	return namespace, nil
}
