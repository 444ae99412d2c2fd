// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nodepods"
)

// PermissionError means that the API server forbids a request.
type PermissionError struct {
	// Verbs and Resource are what a role of the program has to allow, such as "patch" and
	// "pods/status".
	Verbs, Resource string
	// Err is the API server's answer.
	Err error
}

// Error names the permission, and repeats the API server's answer.
func (e *PermissionError) Error() string {
	return fmt.Sprintf("a role has to allow this program to %s %s: %v", e.Verbs, e.Resource, e.Err)
}

// Unwrap returns the API server's answer.
func (e *PermissionError) Unwrap() error { return e.Err }

// permission returns a PermissionError for an answer that forbids, and else the error.
func permission(verbs, resource string, err error) error {
	if apierrors.IsForbidden(err) {
		return &PermissionError{verbs, resource, err}
	}
	return err
}

// Annotate gives the pod the status, or takes the annotation away with [ambient.NoStatus]. Of the
// pod it needs the namespace, the name and the UID; another pod of that name stays as it is.
// Annotate tries again until ctx ends, with growing pauses, while the API server is away, has too
// much to do or does not know the program's token. It also tries again as soon as namespaces can be
// watched again.
//
// The error wraps [feed.ErrPodGone], a [*PermissionError], the API server's other refusal, or the
// end of ctx with the API server's last answer.
func (c *Controller) Annotate(ctx context.Context, pod interception.Pod, status ambient.Status) error {
	if pod.Namespace == "" || pod.Name == "" || pod.UID == "" {
		return fmt.Errorf("annotate pod %q/%q with UID %q: another pod could be annotated instead", pod.Namespace, pod.Name, pod.UID)
	}
	err := c.write(ctx, pod, status)
	if err == nil {
		return nil
	}
	return fmt.Errorf("annotate pod %s/%s with %s=%q: %w", pod.Namespace, pod.Name, c.options.Annotation, status,
		permission("patch", nodepods.Resource+"/status", err))
}

// write patches the pod until it succeeds, cannot succeed, or ctx ends.
func (c *Controller) write(ctx context.Context, pod interception.Pod, status ambient.Status) error {
	var value *string // null removes the annotation
	if text := string(status); status != ambient.NoStatus {
		value = &text
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]*string{c.options.Annotation: value}},
	})
	var last error // before ctx ended
	for pause := pauses(); err == nil; {
		answers := c.nextAnswer()
		err = c.patch(ctx, pod, body)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		switch {
		case err == nil:
			return nil
		case c.isGone(pod, err):
			return fmt.Errorf("%w: %w", feed.ErrPodGone, err)
		case isTransient(err):
			err = sleep(ctx, pause.Step(), answers, last)
		}
	}
	return err
}

// patch sends the request once, and does not read the pod that is the answer.
func (c *Controller) patch(ctx context.Context, pod interception.Pod, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	return c.rest.Patch(types.MergePatchType).Namespace(pod.Namespace).Resource(nodepods.Resource).Name(pod.Name).SubResource("status").
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json").
		Body(body).MaxRetries(0).Do(ctx).Error()
}

// isTransient reports whether the same request may succeed later. Other writers of the pod may
// cause a conflict, too, although the patch has no resourceVersion: the API server gives up after
// some.
func isTransient(err error) bool {
	answer, isAnswer := errors.AsType[*apierrors.StatusError](err)
	if !isAnswer {
		return true
	}
	switch code := answer.ErrStatus.Code; code {
	case http.StatusUnauthorized, http.StatusConflict, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

// isGone reports whether the API server says that the pod does not exist, or that another one has
// its name. A conflict is about that if the informer knows of another one.
func (c *Controller) isGone(pod interception.Pod, err error) bool {
	if apierrors.IsConflict(err) {
		now := c.pod(pod.Namespace + "/" + pod.Name)
		return now != nil && string(now.UID) != pod.UID
	}
	return apierrors.IsNotFound(err) || isImmutable(err, "metadata.uid")
}

// isImmutable reports whether the API server has refused the change of a field. It does so, and
// answers without a conflict, if a patch without a resourceVersion has another pod's UID.
func isImmutable(err error, field string) bool {
	answer, isAnswer := errors.AsType[*apierrors.StatusError](err)
	if !isAnswer || !apierrors.IsInvalid(err) || answer.ErrStatus.Details == nil {
		return false
	}
	return slices.ContainsFunc(answer.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == field })
}

// pauses returns the pauses between attempts.
func pauses() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 30 * time.Second}
}

// answered ends the pauses of requests: the API server answers again.
func (c *Controller) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.answers)
	c.answers = make(chan struct{})
}

// nextAnswer returns a channel that is closed when the API server answers again.
func (c *Controller) nextAnswer() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers
}

// sleep pauses after a failure. The pause ends early when the API server answers again, unless it
// has asked for a pause. The error is the end of ctx with that failure.
func sleep(ctx context.Context, pause time.Duration, answers <-chan struct{}, after error) error {
	if _, asked := apierrors.SuggestsClientDelay(after); asked {
		answers = nil
	}
	timer := time.NewTimer(atLeast(pause, after))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-answers:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), after)
	}
}

// atLeast returns the pause, or a longer one that the API server has asked for.
func atLeast(pause time.Duration, after error) time.Duration {
	if seconds, asked := apierrors.SuggestsClientDelay(after); asked {
		return max(pause, time.Duration(seconds)*time.Second)
	}
	return pause
}
