// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
)

// Client reads, changes and reports pods through an API server. It is safe for concurrent use;
// create it with [NewClient].
//
// Its role needs get, list and watch of pods, and what a policy uses: patch of pods/status (label),
// delete of pods (delete), create of pods/eviction (evict), and create of events.
type Client struct {
	rest rest.Interface
	now  func() time.Time
}

// NewClient returns a client for a configuration, whose content settings are replaced; UserAgent,
// QPS and Burst are the caller's. The error is about the configuration: NewClient sends no request.
func NewClient(config *rest.Config) (*Client, error) {
	if config == nil {
		return nil, fmt.Errorf("%w: a client needs a configuration, such as that of rest.InClusterConfig", ErrOptions)
	}
	client, err := nodepods.NewClient(config)
	if err != nil {
		return nil, err
	}
	return &Client{rest: client, now: time.Now}, nil
}

const (
	contentType = "Content-Type"
	jsonType    = "application/json"
)

// Informer lists and watches the selected pods of a node, and keeps only what decides about them,
// as objects that only controllers of this module read ([Options].Informer). The caller runs it. It
// never resyncs by itself. Of a pod that is too large to be kept, it keeps the labels and
// annotations that keep names, for other controllers. Without the node's name, the error is
// [ErrOptions].
func (c *Client) Informer(node string, pods Selection, keep ...string) (cache.SharedIndexInformer, error) {
	informer, err := nodepods.NewInformer(c.rest, nodepods.Selection{Node: node, Labels: pods.labels, Fields: pods.fields, Keep: keep})
	if errors.Is(err, nodepods.ErrNoNode) {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return informer, err
}

// Pod reads one pod as it is now.
func (c *Client) Pod(ctx context.Context, namespace, name string) (repair.Pod, error) {
	var o nodepods.Object
	if err := c.rest.Get().Namespace(namespace).Resource(nodepods.Resource).Name(name).MaxRetries(0).Do(ctx).Into(&o); err != nil {
		return repair.Pod{}, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return podOf(&o), nil
}

// Do labels, deletes or evicts a pod.
func (c *Client) Do(ctx context.Context, action repair.Action) error {
	if action.Target.UID == "" || action.Target.ResourceVersion == "" {
		return fmt.Errorf("%s pod %s: its UID or resourceVersion isn't known, and another pod could be changed instead", action.Do, action.Target)
	}
	request, body := c.write(action)
	if request == nil {
		return fmt.Errorf("%s pod %s: the API server has no such operation", action.Do, action.Target)
	}
	encoded, err := json.Marshal(body)
	if err == nil {
		err = send(ctx, request, encoded)
	}
	if err != nil {
		return fmt.Errorf("%s pod %s: %w", action.Do, action.Target, err)
	}
	return nil
}

func (c *Client) write(action repair.Action) (request *rest.Request, body any) {
	of := action.Target
	uid := types.UID(of.UID)
	deletion := metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &of.ResourceVersion},
	}
	switch action.Do {
	case repair.ModeLabel:
		// A patch of the status may change metadata but nothing of the spec: the role needs no
		// more.
		request = c.rest.Patch(types.MergePatchType).SubResource("status")
		body = map[string]any{"metadata": map[string]any{
			"uid": of.UID, "resourceVersion": of.ResourceVersion, "labels": map[string]string{action.Label.Key: action.Label.Value},
		}}
	case repair.ModeDelete:
		request, body = c.rest.Delete().SetHeader(contentType, jsonType), deletion
	case repair.ModeEvict:
		request = c.rest.Post().SetHeader(contentType, jsonType).SubResource("eviction")
		body = map[string]any{
			"kind": "Eviction", "apiVersion": "policy/v1", "metadata": map[string]string{"namespace": of.Namespace, "name": of.Name},
			"deleteOptions": deletion,
		}
	case repair.ModeNothing, repair.ModeReport, repair.ModeRepair:
		return nil, nil
	default:
		return nil, nil
	}
	return request.Namespace(of.Namespace).Resource(nodepods.Resource).Name(of.Name), body
}

// send sends a request once: the caller decides when to retry. The API server answers an eviction
// that a budget forbids with 429, too.
func send(ctx context.Context, request *rest.Request, body []byte) error {
	return request.Body(body).MaxRetries(0).Do(ctx).Error()
}

// CreateEvent creates an event on the pod. Its name is derived from its content: until the API
// server expires it, the event exists only once, whichever process creates it.
func (c *Client) CreateEvent(ctx context.Context, e Event) error {
	now, component := metav1.NewTime(c.now()), cmp.Or(e.Component, defaultComponent)
	body, err := json.Marshal(map[string]any{
		"kind": "Event", "apiVersion": "v1", "metadata": map[string]string{"namespace": e.About.Namespace, "name": e.name()},
		"involvedObject": map[string]string{
			"kind": "Pod", "apiVersion": "v1", "namespace": e.About.Namespace, "name": e.About.Name,
			"uid": e.About.UID, "resourceVersion": e.About.ResourceVersion,
		},
		"type": "Warning", "reason": e.Reason, "message": e.Message, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
		"source": map[string]string{"component": component, "host": e.Node}, "reportingComponent": component, "reportingInstance": e.Node,
	})
	if err == nil {
		err = send(ctx, c.rest.Post().SetHeader(contentType, jsonType).Namespace(e.About.Namespace).Resource("events"), body)
	}
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("record the event %s for pod %s: %w", e.Reason, e.About, err)
}

// defaultComponent is the default for Component. Istio's repair uses the same name.
const defaultComponent = "cni-repair"

// mostPodName is how much of a pod's name fits into an event's name, which has at most 253 bytes.
const mostPodName = 253 - 17

func (e Event) name() string {
	hash := fnv.New64a()
	for _, text := range []string{e.About.UID, e.Reason, e.Message} {
		hash.Write([]byte(text + "\x00"))
	}
	pod := strings.TrimRight(e.About.Name[:min(len(e.About.Name), mostPodName)], ".-")
	return fmt.Sprintf("%s.%016x", pod, hash.Sum64())
}

// Selection narrows the pods of a node. The zero value selects all. Create it with
// [ParseSelection].
type Selection struct {
	labels labels.Selector
	fields fields.Selector
}

// ParseSelection parses selectors as kubectl's --selector and --field-selector take them
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors).
// Fields are limited to those that this package reads: metadata.name, metadata.namespace,
// spec.nodeName, spec.restartPolicy and status.phase. The error reports what is wrong.
func ParseSelection(labelSelector, fieldSelector string) (Selection, error) {
	byLabel, err := labels.Parse(labelSelector)
	if err != nil {
		return Selection{}, fmt.Errorf("label selector %q: %w", labelSelector, err)
	}
	byField, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return Selection{}, fmt.Errorf("field selector %q: %w", fieldSelector, err)
	}
	known := fieldsOf(repair.Pod{})
	for _, term := range byField.Requirements() {
		if !known.Has(term.Field) {
			return Selection{}, fmt.Errorf("field selector %q: field %q isn't read here: name %s",
				fieldSelector, term.Field, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return Selection{byLabel, byField}, nil
}

// Has reports whether the selection includes the pod.
func (s Selection) Has(pod repair.Pod) bool {
	return (s.labels == nil || s.labels.Matches(labels.Set(pod.Labels))) && (s.fields == nil || s.fields.Matches(fieldsOf(pod)))
}

func fieldsOf(pod repair.Pod) fields.Set {
	return fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.NodeName,
		"spec.restartPolicy": string(pod.RestartPolicy), "status.phase": string(pod.Phase),
	}
}
