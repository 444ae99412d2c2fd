// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrNotDeleted is in the error of [Client.Delete].
var ErrNotDeleted = errors.New("the DaemonSet, or a pod of it, is still there")

// foreground has the DaemonSet stay until its pods have ended, so that each of them, asking, hears that it is deleted.
// See https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion.
const foreground = `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}`

// mostRefusals is how many times in a row the API server may refuse: a role that was made just now is known a moment later.
const mostRefusals = 4

// Delete deletes the DaemonSet and waits until its pods have ended and it is gone. It is nil if there was none. What fails is tried again until
// ctx ends, but for a refusal, again and again, by the API server: a role that allows it isn't there. An error wraps [ErrNotDeleted].
func (c Client) Delete(ctx context.Context) error {
	r := removal{Client: c}
	for {
		done, err := r.advance(ctx)
		if done {
			return nil
		}
		if r.refused == mostRefusals || c.wait(ctx) != nil {
			return fmt.Errorf("%w: %w", ErrNotDeleted, err)
		}
	}
}

var errPods = errors.New("its pods haven't ended; is a node down?")

// removal is a deletion on its way.
type removal struct {
	Client
	accepted bool
	refused  int // in a row
}

// advance asks for the deletion, and when that is accepted, for how it goes. The error says why it isn't done.
func (r *removal) advance(ctx context.Context) (done bool, err error) {
	method, body := http.MethodDelete, foreground
	if r.accepted {
		method, body = http.MethodGet, ""
	}
	a, err := r.send(ctx, r.daemonSet(), method, body)
	if err != nil {
		return false, err
	}
	if a.isMissing(r.Name) || (r.accepted && a.isAnother()) {
		return true, nil
	}
	switch a.status {
	case http.StatusOK, http.StatusAccepted:
		r.accepted, r.refused = true, 0
		return false, errPods
	case http.StatusForbidden, http.StatusUnauthorized:
		r.refused++
		return false, fmt.Errorf("%w; the service account needs get and delete of it", a.unexpected())
	}
	return false, a.unexpected()
}

// isAnother says that ours has gone, and this is another one of its name.
func (a answer) isAnother() bool {
	return a.status == http.StatusOK && a.Metadata.DeletionTimestamp == ""
}

// wait waits until it is time to ask again.
func (c Client) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(cmp.Or(c.Pause, time.Second)):
		return nil
	}
}
