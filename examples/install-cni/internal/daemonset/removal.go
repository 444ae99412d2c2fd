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
var ErrNotDeleted = errors.New("the DaemonSet or one of its pods is still there")

// foreground keeps the DaemonSet until its pods have ended, so that each of them, when it asks,
// learns of the deletion. See
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion.
const foreground = `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}`

// mostRefusals is how many times in a row the API server may refuse: a new role takes effect a
// moment after its creation.
const mostRefusals = 4

// Delete deletes the DaemonSet and waits until its pods have ended and it no longer exists. It
// returns nil if there was none. It retries until ctx ends, but gives up after several refusals in
// a row by the API server: then no role allows the deletion. An error wraps [ErrNotDeleted].
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

// removal is a deletion in progress.
type removal struct {
	Client
	accepted bool
	refused  int // in a row
}

// advance requests the deletion, and once that is accepted, its state. The error is why it is not
// done.
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
	switch a.Status {
	case http.StatusOK, http.StatusAccepted:
		r.accepted, r.refused = true, 0
		return false, errPods
	case http.StatusForbidden, http.StatusUnauthorized:
		r.refused++
		return false, fmt.Errorf("%w; the service account needs get and delete of it", a.Unexpected())
	}
	return false, a.Unexpected()
}

// isAnother reports whether this is another DaemonSet of the same name, created after the deletion
// of ours.
func (a answer) isAnother() bool {
	return a.Status == http.StatusOK && a.Metadata.DeletionTimestamp == ""
}

func (c Client) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(cmp.Or(c.Pause, time.Second)):
		return nil
	}
}
