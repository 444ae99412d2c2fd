// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrRefused is in the error of [Client.Look] for an answer that stays the same until somebody changes a role or a setting.
var ErrRefused = errors.New("the API server doesn't tell about the DaemonSet")

// Interval is how often [Client.Look] should be called, beside each time that the token is renewed.
const Interval = 10 * time.Minute

// Look asks for the DaemonSet, and for its namespace until that is known, for the sake of the memory. The error says what would keep
// [Client.Deleted] from knowing.
func (c Client) Look(ctx context.Context) error {
	if why := c.unverified(); why != "" {
		return fmt.Errorf("%w: %s", ErrRefused, why)
	}
	if err := c.lookFor(ctx, c.daemonSet(), "there is none of that name; see pod-namespace and agent-name"); err != nil {
		return err
	}
	if c.memory().sawNamespace() {
		return nil
	}
	return c.lookFor(ctx, c.namespace(), "there is none of that name; see pod-namespace")
}

func (c Client) lookFor(ctx context.Context, o object, missing string) error {
	a, err := c.get(ctx, o)
	switch {
	case err != nil:
		return err
	case a.status == http.StatusOK:
		return nil
	case a.isMissing(o.name):
		return fmt.Errorf("%w: %s %s: %s", ErrRefused, o.kind, o.name, missing)
	case a.status == http.StatusForbidden:
		return fmt.Errorf("%w: the service account may not get the %s %s; allow it by a role, or set uninstall-on-deletion to false",
			ErrRefused, o.kind, o.name)
	}
	return fmt.Errorf("%s %s: %w", o.kind, o.name, a.unexpected())
}
